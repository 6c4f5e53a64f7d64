"""Twenty callers at the same moment, each over a connection of its own."""

from __future__ import annotations

from time import sleep
from typing import Any
from uuid import uuid4

import pytest

from django_idempotency.exceptions import StillRunning
from django_idempotency.once import Claim, once
from testproject.payments.models import LedgerEntry
from tests.kit.threads import actors, together
from tests.once.works import SCOPE

CALLERS = 20

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


def patiently(**arguments: Any) -> Any:
    """Like somebody who is told to ask again later, and does."""
    while True:
        try:
            return once(**arguments)
        except StillRunning:
            sleep(0.01)


def book(claim: Claim) -> str:
    LedgerEntry.objects.create(reference=claim.key, account="work", amount=1)
    return uuid4().hex


def book_at_the_end(claim: Claim) -> Any:
    return claim.finish(lambda: book(claim))


@pytest.mark.parametrize(
    ("mode", "run"), [("leased", book), ("leased", book_at_the_end), ("atomic", book)], ids=["leased", "late", "atomic"]
)
def test_one_of_them_runs_and_all_get_its_result(mode: str, run: Any) -> None:
    key = uuid4().hex
    with actors(CALLERS) as crowd:
        results = together(crowd, lambda number: patiently(scope=SCOPE, key=key, mode=mode, run=run))

    assert len(results) == CALLERS
    assert len(set(results)) == 1
    assert LedgerEntry.objects.filter(reference=key).count() == 1
