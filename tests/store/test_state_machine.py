"""Every function of the store does what the transition table says, and nothing else."""

from collections.abc import Iterator
from itertools import product
from uuid import uuid4

import pytest

from django_idempotency import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Transition
from tests.kit.rows import columns_for, snapshot
from tests.store.machine import run_machine
from tests.store.oracle import Facts, Verb, applies
from tests.store.verbs import ALL
from tests.store.worlds import EVERY, a_world, check, combinations

pytestmark = pytest.mark.vendor


@pytest.mark.django_db
@pytest.mark.parametrize("status", [None, *Status], ids=lambda status: status or "absent")
@pytest.mark.parametrize("verb", ALL, ids=lambda verb: verb.name)
def test_every_statement_in_every_state_under_every_guard(verb: Verb, status: Status | None) -> None:
    changed = {check(verb, *a_world(status, on)) for on in combinations(verb)}
    possible = any(status in (each.sources or {None}) for each in verb.transitions)
    assert (True in changed) is possible


CHANGES = [each for each in TRANSITIONS if each.target is not Edge.SAME]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("transition", "source"),
    [
        pytest.param(each, source, id=f"{each.cite} from {source or 'absent'} to {each.target.value}")
        for each in CHANGES
        for source in (each.sources or [None])
    ],
)
def test_every_row_of_the_table_is_carried_out(transition: Transition, source: Status | None) -> None:
    carried_out = (
        applies(transition, snapshot(record), facts) and check(verb, record, facts)
        for verb in ALL
        if transition in verb.transitions
        for record, facts in (a_world(source, on) for on in combinations(verb))
    )
    assert any(carried_out), f"no statement carries out {transition.cite}"


@pytest.mark.slow
@pytest.mark.parametrize("status", list(Status))
def test_no_two_rows_of_the_table_want_the_same_record(status: Status) -> None:
    """For one event and one set of facts the table gives one answer."""
    token = uuid4()
    for on in map(frozenset, _subsets(sorted(EVERY))):
        row = {**columns_for(status, on), "status": status, "attempt_token": token}
        row = {"locked_until": None, "expires_at": None, **row}
        facts = Facts(
            read_token=token if "token" in on else uuid4(),
            success="success" in on,
            steps_done=0 if "progress" in on else 1,
            cap=5,
        )
        events = [each.event for each in TRANSITIONS if each.sources and applies(each, row, facts)]
        assert len(events) == len(set(events)), f"{status} with {sorted(on)}: {events}"


def _subsets(names: list[str]) -> Iterator[list[str]]:
    for truths in product((False, True), repeat=len(names)):
        yield [name for name, truth in zip(names, truths, strict=True) if truth]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_any_order_of_anything_by_anybody_agrees_with_the_table() -> None:
    run_machine()
