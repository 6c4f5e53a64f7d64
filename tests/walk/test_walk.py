"""Random histories of requests, failures, jobs and people keep the promises of the package."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from django_idempotency import signals
from tests.kit.registrations import temporary_registrations
from tests.walk.endpoints import note_claim, register
from tests.walk.holes import HOLES
from tests.walk.search import history_of, shortest
from tests.walk.world import USERS, world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.walk.endpoints")]

CLAIMS = (signals.reserved, signals.renewed, signals.retried, signals.taken_over)
BUDGET = 400  # histories in which a hole has to be found
FIRST, COUNT = (int(number) for number in os.environ.get("WALK", "1:1000").split(":"))


@pytest.fixture(autouse=True)
def _walking(settings: Any, registrations: None) -> Iterator[None]:
    logging.disable()
    settings.MIDDLEWARE = ["tests.walk.endpoints.Caller"]
    settings.IDEMPOTENCY = {
        "TENANT": "tests.walk.endpoints.tenant_of",
        "ENQUEUE": lambda record: world().messages.append(record),
        "RECONCILE_TRIES": 2,
        "ATTEMPTS": 3,
        "ATTEMPTS_SPAN": 0,
    }
    USERS.clear()
    for signal in CLAIMS:
        signal.connect(note_claim)
    with temporary_registrations():
        register()
        yield
    for signal in CLAIMS:
        signal.disconnect(note_claim)
    logging.disable(logging.NOTSET)


def walk(seeds: range) -> None:
    for seed in seeds:
        found = history_of(seed)
        if found.violation is not None:
            pytest.fail(f"seed {seed}: {shortest(found)}", pytrace=False)


@pytest.mark.vendor
def test_some_histories_keep_the_promises() -> None:
    walk(range(3))


@pytest.mark.vendor
@pytest.mark.soak
def test_many_histories_keep_the_promises() -> None:
    """WALK=first:count chooses the seeds."""
    walk(range(FIRST, FIRST + COUNT))


@pytest.mark.soak
@pytest.mark.parametrize("name", HOLES)
def test_the_walk_finds_a_hole_that_is_put_back(name: str) -> None:
    hole = HOLES[name]
    with hole.made():
        found = (history_of(seed, hole.endpoints).violation for seed in range(BUDGET))
        assert any(each is not None and each.name in hole.violations for each in found), f"not in {BUDGET} histories"
