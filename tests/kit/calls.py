"""What the tests of the flow share: a call, work that leaves a trace, and a look at the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import uuid4

from django.db import connection, connections, transaction
from django.dispatch import Signal

from django_idempotency import FingerprintRule, Policy, Reply, Status
from django_idempotency.core.decisions import Answer, Call
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from testproject.payments.models import LedgerEntry

T = TypeVar("T")

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
BOOKED = Reply(201, (("Content-Type", "text/plain"),), b"booked")
REFUSED = Reply(402, (), b"no funds")


def a_call(key: str | None = None, *, body: bytes = b'{"amount": 5}', **policy: Any) -> Call:
    """A request of alice's; every call has a key of its own unless one is given."""
    parts = RequestParts("POST", "/payments", "", "application/json", body)
    fingerprint = seal(parts, FingerprintRule())
    return Call("alice payments", key or uuid4().hex, fingerprint, Policy(**policy), operation="payments.create")


@dataclass
class Booking:
    """Work: books one entry, then answers or raises; remembers how often it ran and what it found."""

    call: Call
    raises: BaseException | None = None
    reply: Reply = BOOKED
    using: str = "default"
    found: list[int] = field(default_factory=list)

    def __call__(self, attempt: Attempt | None = None) -> tuple[str, Reply]:
        self.found.append(bookings(self.call))
        LedgerEntry.objects.using(self.using).create(reference=self.call.key, account="cash", amount=5)
        if self.raises is not None:
            raise self.raises
        return "booked", self.reply

    @property
    def runs(self) -> int:
        return len(self.found)


def claimed(call: Call) -> Attempt:
    """Begin, which has to win."""
    attempt = begin(call)
    assert isinstance(attempt, Attempt), attempt
    return attempt


def refused(call: Call) -> Answer:
    """Begin, which has to be answered."""
    answer = begin(call)
    assert not isinstance(answer, Attempt), answer
    return answer


def record(call: Call) -> IdempotencyKey:
    return IdempotencyKey.objects.get(id=call.id)


def status(call: Call) -> Status:
    return Status(record(call).status)


def bookings(call: Call) -> int:
    return LedgerEntry.objects.filter(reference=call.key).count()


def events(call: Call) -> list[tuple[str, str]]:
    """Transition and reason of each event, oldest first."""
    found = IdempotencyEvent.objects.filter(record_id=call.id).order_by("id")
    return [(event.transition, event.reason) for event in found]


def age(call: Call, *columns: str) -> None:
    """These times of the record are long past."""
    assert IdempotencyKey.objects.filter(id=call.id).update(**dict.fromkeys(columns, LONG_AGO)) == 1


def put(call: Call, **columns: Any) -> None:
    """The record looks like this from now on."""
    assert IdempotencyKey.objects.filter(id=call.id).update(**columns) == 1


@contextmanager
def heard(signal: Signal, then: Callable[[], None] = lambda: None) -> Iterator[list[dict[str, Any]]]:
    """What a signal brought; `then` runs in the receiver."""
    brought: list[dict[str, Any]] = []

    def receive(sender: object, **payload: Any) -> None:
        brought.append(payload)
        then()

    signal.connect(receive)
    try:
        yield brought
    finally:
        signal.disconnect(receive)


def elsewhere(work: Callable[[], T]) -> T:
    """Run work on a connection of its own, to its end."""
    with running("default", work) as outcome:
        return outcome.result()


@contextmanager
def running(alias: str, work: Callable[[], T]) -> Iterator[Future[T]]:
    """Work in a thread of its own, which has this alias too, with connections of its own."""
    wrapper = connections[alias].copy()

    def run_and_close() -> T:
        connections[alias] = wrapper
        try:
            return work()
        finally:
            wrapper.close()
            connections.close_all()

    wrapper.inc_thread_sharing()
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run_and_close)


@contextmanager
def another_alias(name: str, **changes: Any) -> Iterator[str]:
    """The same database under another name in this thread, with other settings."""
    wrapper = connection.copy(name)
    wrapper.settings_dict.update(changes)
    connections[name] = wrapper
    try:
        yield name
    finally:
        wrapper.close()
        del connections[name]


@contextmanager
def nobody_answers() -> Iterator[None]:
    """The database is not at its address, in this thread."""
    own, away = connections["default"], connection.copy()
    away.settings_dict.update({"NAME": "/nowhere/db"} if own.vendor == "sqlite" else {"HOST": "127.0.0.1", "PORT": "1"})
    connections["default"] = away
    try:
        yield
    finally:
        connections["default"] = own


@contextmanager
def without_autocommit() -> Iterator[None]:
    """Somebody looks after the transactions himself; what is not committed in the end is rolled back."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        if not transaction.get_autocommit():
            transaction.rollback()
            transaction.set_autocommit(True)


def in_transaction() -> bool:
    """Whether the records' connection has a transaction open."""
    return connection.in_atomic_block


def somebody_waits_for_a_lock() -> bool:
    """Whether another session on this database waits for a row."""
    waiting = {
        "postgresql": "FROM pg_stat_activity WHERE datname = CURRENT_DATABASE() AND wait_event_type = 'Lock'",
        "mysql": "FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id"
        " WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()",
    }
    if connection.vendor == "mysql":
        time.sleep(0.15)  # it shows what it showed before to whoever asks again within a tenth of a second
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) {waiting[connection.vendor]}")
        return bool(cursor.fetchone()[0])
