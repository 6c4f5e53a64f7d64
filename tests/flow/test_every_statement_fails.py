"""Each call of the driver fails in turn, on each path from each state of a record: no effect is made twice or lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from django_idempotency import Reply, Status
from django_idempotency.core.calls import Call
from django_idempotency.exceptions import NotExecuted
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from tests.kit.calls import BOOKED, REFUSED, Booking, a_call, bookings, claimed
from tests.kit.faults import KINDS, Fault, Kind, under_fire
from tests.kit.records import age, status_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.vendor]


@dataclass
class Scenario:
    """One request under fire. `prepare` runs before it in peace."""

    name: str
    prepare: Callable[[Call], None] = lambda call: None
    raises: BaseException | None = None
    reply: Reply = BOOKED
    most_runs: int = 1
    most_bookings: int = 1
    policy: dict[str, Any] = field(default_factory=dict)

    def work(self, call: Call) -> Booking:
        return Booking(call, raises=self.raises, reply=self.reply)


def answered(call: Call) -> None:
    finish(claimed(call), Booking(call))


def released(call: Call) -> None:
    fail(claimed(call), NotExecuted())


def abandoned(call: Call) -> None:
    claimed(call)
    age(call, "locked_until")


def expired(call: Call) -> None:
    finish(claimed(call), lambda: (None, REFUSED))
    age(call, "expires_at")


SCENARIOS = [
    Scenario("leased, new"),
    Scenario("leased, replay", answered, most_runs=0),
    Scenario("atomic, new", policy={"mode": "atomic"}, most_runs=2),
    Scenario("atomic, replay", answered, policy={"mode": "atomic"}, most_runs=0),
    Scenario("released, then tried again", released),
    Scenario("taken over", abandoned, policy={"on_lost_lease": "restart"}, most_runs=2),
    Scenario("lease over", abandoned, most_runs=0, most_bookings=0),
    Scenario("expired, renewed", expired),
    Scenario("expired, renewed in atomic mode", expired, policy={"mode": "atomic"}, most_runs=2),
    Scenario("refusal", reply=REFUSED),
    Scenario("doubt", raises=RuntimeError("nobody knows")),
    Scenario("proof", raises=NotExecuted(), most_runs=2),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_no_statement_that_fails_breaks_the_promise(scenario: Scenario, kind: Kind) -> None:
    for nth in count(1):
        fault = Fault(kind, nth)
        go_through(scenario, fault)
        if not fault.struck:
            break
    assert nth > 1, "the scenario has no statement"


def go_through(scenario: Scenario, fault: Fault) -> None:
    leased = a_call(**{name: value for name, value in scenario.policy.items() if name != "mode"})
    call = a_call(leased.key, **scenario.policy)
    scenario.prepare(leased)
    work = scenario.work(call)
    with under_fire(fault), suppress(Exception):
        run_call(call, work)
    where = str(fault)
    check(call, scenario, work, where)
    again = scenario.work(call)
    again.raises = None
    with suppress(Exception):
        run_call(call, again)
    work.found += again.found
    check(call, scenario, work, f"a retry after {where}")
    assert settled_or_waiting(call), where


def check(call: Call, scenario: Scenario, work: Booking, where: str) -> None:
    assert bookings(call) <= scenario.most_bookings, where
    assert work.runs <= scenario.most_runs, where
    assert not any(work.found), f"{where}: ran although an effect was there"
    row = IdempotencyKey.objects.filter(id=call.id).first()
    booked_here = scenario.prepare is not expired or (row is not None and row.response_status == work.reply.status)
    done = row is not None and row.status == Status.COMPLETED and booked_here
    assert bool(bookings(call)) is done, f"{where}: {row and row.status} with {bookings(call)} bookings"


def settled_or_waiting(call: Call) -> bool:
    """An answer, a doubt that is due, or a lease that will run out: nothing is stuck."""
    return status_of(call) in (Status.COMPLETED, Status.UNKNOWN, Status.IN_PROGRESS, Status.FAILED_RETRYABLE)
