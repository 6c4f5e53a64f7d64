"""Three nodes of Galera write at once: one of them wins a key, and a conflict is a retry, never a lie.

`python3 dev.py test --engine galera` starts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, connections
from django.db.models import F

from django_idempotency import Status, maintenance
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer
from django_idempotency.exceptions import OutcomeUnknown, StoreUnavailable
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyEvent, IdempotencyKey, MaintenanceRun
from django_idempotency.once import Claim, once
from testproject.payments.models import LedgerEntry
from tests.kit.calls import a_call, bookings, handler
from tests.kit.records import LONG_AGO, status_of
from tests.kit.rows import put
from tests.kit.threads import Actor, actors, together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.vendor, pytest.mark.soak]

ROUNDS = 20
ROWS = 60


@pytest.fixture
def addresses(vendor: str) -> list[str]:
    """Of every node of the cluster that this run's database is in; its own is the first."""
    with connection.cursor() as cursor:
        found = cursor.execute("SHOW STATUS LIKE 'wsrep_incoming_addresses'") if vendor == "mysql" else 0
        every = cursor.fetchone()[1].split(",") if found else []
    if len(every) < 3:
        pytest.skip("NOT TESTED: needs the nodes of `dev.py test --engine galera`")
    own = f"127.0.0.1:{connection.settings_dict['PORT']}"
    return sorted(every, key=lambda each: each != own)


@pytest.fixture
def crowd(addresses: list[str]) -> Iterator[list[Actor]]:
    """Four at each node."""
    with actors(4 * len(addresses)) as crowd:
        for number, actor in enumerate(crowd):
            actor.do(move_to, addresses[number % len(addresses)])
        yield crowd


def move_to(address: str) -> None:
    """This thread's records are at that node."""
    wrapper = connection.copy()
    wrapper.settings_dict["HOST"], _, wrapper.settings_dict["PORT"] = address.partition(":")
    connections["default"] = wrapper


def ask(call: Call, number: int) -> str:
    try:
        answer = run_call(call, handler(call))
    except StoreUnavailable:
        return "503"
    return type(answer).__name__ if isinstance(answer, Answer) else answer


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_one_of_the_claims_at_all_nodes_wins(crowd: list[Actor], mode: str) -> None:
    for _ in range(ROUNDS):
        call = a_call(mode=mode)
        answers = Counter(together(crowd, partial(ask, call)))
        assert (answers["booked"], bookings(call), status_of(call)) == (1, 1, Status.COMPLETED), answers
        assert set(answers) <= {"booked", "InFlight", "Replay", "503"}
        assert run_call(call, handler(call)) != "booked"


class Contended:
    """Work whose first run meets a COMMIT of another node."""

    def __init__(self, other: Actor) -> None:
        self.other, self.runs = other, 0
        self.entry = LedgerEntry.objects.create(reference="shared", account="cash", amount=0)

    def add(self) -> None:
        LedgerEntry.objects.filter(pk=self.entry.pk).update(amount=F("amount") + 1)

    def run(self) -> str:
        self.runs += 1
        self.add()
        if self.runs == 1:
            self.other.do(self.add)
        return "done"

    def finish(self, claim: Claim) -> Any:
        return claim.finish(self.run)

    @property
    def amount(self) -> int:
        self.entry.refresh_from_db()
        return int(self.entry.amount)


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_transaction_that_met_another_nodes_runs_again(crowd: list[Actor], mode: str) -> None:
    work = Contended(crowd[1])
    run = work.finish if mode == "leased" else lambda claim: work.run()
    for _ in range(2):
        assert once(scope="nodes", key="one", mode=mode, run=run) == "done"
    assert (work.runs, work.amount) == (2, 2)


def test_where_it_may_not_run_again_its_outcome_is_unknown(crowd: list[Actor]) -> None:
    """The view may have called somebody: nobody repeats it, and nobody says that it succeeded."""
    call, work = a_call(), Contended(crowd[1])
    with pytest.raises((OutcomeUnknown, OperationalError)):
        run_call(call, lambda attempt: (work.run(), handler(call)(attempt)[1]))
    assert (work.runs, work.amount, bookings(call), status_of(call)) == (1, 1, 0, Status.UNKNOWN)


def work_off(job: Callable[[maintenance.Bounds], Counter[str]], number: int) -> Counter[str]:
    return job(maintenance.Bounds(batch_size=10))


def test_jobs_at_all_nodes_at_once_come_to_their_end(crowd: list[Actor]) -> None:
    for number in range(ROWS):
        put(Status.IN_PROGRESS, key=f"lost {number}", locked_until=LONG_AGO)
        put(Status.COMPLETED, key=f"old {number}", expires_at=LONG_AGO)
    IdempotencyEvent.objects.bulk_create(
        [IdempotencyEvent(record_id=uuid4(), kind="landed", at=LONG_AGO) for _ in range(ROWS)]
    )
    total: Counter[str] = Counter()
    for job in (maintenance.sweep, maintenance.reap):
        total += sum(together(crowd, partial(work_off, job)), Counter())
        total += job()

    assert [total[each] for each in ("unknown", "deleted", "events", "failed")] == [ROWS, ROWS, ROWS, 0]
    assert set(IdempotencyKey.objects.values_list("status", flat=True)) == {"unknown"}
    assert set(MaintenanceRun.objects.values_list("error", flat=True)) == {""}
