"""Every function of the store does what the transition table says, and nothing else."""

from collections.abc import Iterator
from itertools import product

import pytest
from django.db import connection

from django_idempotency import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event
from tests.store.machine import run_machine
from tests.store.oracle import Verb, applies
from tests.store.verbs import ALL
from tests.store.worlds import KNOBS, a_world, check, combinations, imagined

pytestmark = pytest.mark.vendor


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ALL, ids=lambda verb: verb.name)
def test_every_statement_in_every_state_under_every_guard(verb: Verb) -> None:
    for status in (None, *Status):
        changed = {check(verb, *a_world(status, on)) for on in combinations(verb)}
        possible = any(status in (each.sources or {None}) for each in verb.transitions)
        assert (True in changed) is possible, status


def test_every_row_of_the_table_is_carried_out_by_a_statement() -> None:
    """As the table predicts it; the test above compares each prediction with what the database does."""
    carried_out = {
        (transition, status)
        for verb in ALL
        for transition in verb.transitions
        for status in transition.sources or [None]
        if any(applies(transition, *imagined(status, on)) for on in combinations(verb))
    }
    changes = [each for each in TRANSITIONS if each.target is not Edge.SAME]
    assert {(each, source) for each in changes for source in each.sources or [None]} - carried_out == set()


@pytest.mark.parametrize("status", list(Status))
def test_no_two_rows_of_the_table_want_the_same_record(status: Status) -> None:
    """For one event and one set of facts the table gives one answer."""
    for event in Event:
        rows = [each for each in TRANSITIONS if each.event is event and status in each.sources]
        mattering = {KNOBS[guard] for each in rows for guard in each.guards if guard in KNOBS}
        for on in subsets(sorted(mattering | {"success"})):
            fitting = [each.cite for each in rows if applies(each, *imagined(status, on))]
            assert len(fitting) <= 1, f"{event} {status} with {sorted(on)}: {fitting}"


def subsets(names: list[str]) -> Iterator[frozenset[str]]:
    for truths in product((False, True), repeat=len(names)):
        yield frozenset(name for name, truth in zip(names, truths, strict=True) if truth)


@pytest.mark.parametrize("examples", [10, pytest.param(150, marks=pytest.mark.soak)])
@pytest.mark.django_db(transaction=True)
def test_any_order_of_anything_by_anybody_agrees_with_the_table(examples: int) -> None:
    run_machine(max_examples=examples if connection.vendor == "sqlite" else min(examples, 40))
