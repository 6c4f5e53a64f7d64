"""Without one of its guards a statement of the store is caught, by the exhaustive test and by the state machine."""

from collections.abc import Iterator
from itertools import chain, product
from typing import TypeAlias

import pytest
from django.db import DatabaseError, connection, transaction

from django_idempotency import Status
from tests.store.machine import first_failure
from tests.store.mutants import Mutant, mutants
from tests.store.oracle import Verb
from tests.store.worlds import a_world, check, combinations, favourable, mattering

pytestmark = pytest.mark.vendor

World: TypeAlias = tuple[Status | None, frozenset[str]]
CAUGHT = (AssertionError, DatabaseError)  # by what the table predicts, or by a constraint
only_once = pytest.mark.skipif(
    "connection.vendor != 'sqlite'", reason="all databases get their conditions from one text"
)


def shows(mutant: Mutant) -> bool:
    try:
        with mutant.at_work(), transaction.atomic():
            for status, on in chain(near_misses(mutant.verb), everything(mutant.verb)):
                check(mutant.verb, *a_world(status, on))
    except CAUGHT:
        return True
    return False


def everything(verb: Verb) -> Iterator[World]:
    return product((None, *Status), combinations(verb))


def near_misses(verb: Verb) -> Iterator[World]:
    """What the verb changes, but for one thing: where a missing condition shows first."""
    for source in {each for transition in verb.transitions for each in transition.sources or [None]}:
        on = favourable(verb, source)
        yield from ((source, on ^ {knob}) for knob in mattering(verb))
        yield from ((status, on) for status in (None, *Status))


@only_once
@pytest.mark.django_db
def test_every_state_under_every_guard_shows_each_condition_that_is_missing() -> None:
    everyone = list(mutants(connection.vendor))
    assert len(everyone) > 80
    assert [str(mutant) for mutant in everyone if not shows(mutant)] == []


ONE_OF_EACH = {
    "token": ("complete", "attempt_token = %(token)s"),
    "token as read": ("not_executed", "attempt_token = %(read_token)s"),
    "status": ("doubt", "status = 'in_progress'"),
    "grace": ("dismiss", "grace_until <= "),
    "lease": ("lapse", "locked_until <= "),
    "taint": ("give_back", "NOT tainted"),
    "progress": ("mark", "steps_done = %(steps_done)s"),
    "tries": ("inconclusive", "reconcile_attempts + 1 < %(cap)s"),
    "attempts": ("exhaust", "attempts >= %(cap)s"),
    "retention": ("renew", "expires_at <= "),
    "audit": ("expire", "audit_seconds IS NOT NULL"),
    "deferred": ("release", "NOT deferred"),
    "resumable": ("take_over", "on_lost_lease <> 'unknown'"),
}


@only_once
@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("verb", "condition"), ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_any_order_of_anything_shows_one_condition_of_each_kind(verb: str, condition: str) -> None:
    (mutant,) = (
        each for each in mutants(connection.vendor) if each.verb.name == verb and each.condition.startswith(condition)
    )
    with mutant.at_work(), pytest.raises(CAUGHT):
        first_failure()
