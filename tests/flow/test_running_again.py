"""Serialization failures, deadlocks and busy files, provoked by a second connection: all of it runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models import F

from django_idempotency import Reply, Status
from django_idempotency.core.calls import Call
from django_idempotency.flow.atomic import run_atomic
from django_idempotency.flow.finish import finish
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from testproject.payments.models import LedgerEntry
from tests.kit.calls import Booking, a_call, bookings, claimed
from tests.kit.databases import another_alias, elsewhere, running, somebody_waits_for_a_lock
from tests.kit.records import row_of, status_of
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ALIAS = "contended"


class Contended:
    """Work that adds ten to a shared entry and books; `interfere` runs between its read and its write."""

    def __init__(self, call: Call, interfere: Callable[[int], None]) -> None:
        self.shared = LedgerEntry.objects.create(reference="shared", account="cash", amount=0)
        self.book = Booking(call, using=ALIAS)
        self.interfere = interfere

    def __call__(self, attempt: object = None) -> tuple[str, Reply]:
        result = self.book()
        self.interfere(self.book.runs)
        self.add(10, ALIAS)
        return result

    def add(self, amount: int, using: str = "default") -> None:
        LedgerEntry.objects.using(using).filter(pk=self.shared.pk).update(amount=F("amount") + amount)

    @property
    def total(self) -> int:
        self.shared.refresh_from_db()
        return self.shared.amount


WAYS = pytest.mark.parametrize(("mode", "way"), [("leased", "late"), ("atomic", "atomic")])


def go(way: str, call: Call, work: Callable[..., tuple[str, Reply]]) -> Any:
    if way == "atomic":
        return run_atomic(call, work, ALIAS)
    attempt = claimed(call)
    attempt.using = ALIAS
    return finish(attempt, work, rerun=True)


@pytest.fixture
def serializable(vendor: str) -> Iterator[None]:
    if vendor != "postgresql":
        pytest.skip("serialization failures are PostgreSQL's")
    options = {**connection.settings_dict["OPTIONS"], "isolation_level": psycopg.IsolationLevel.SERIALIZABLE}
    with another_alias(ALIAS, OPTIONS=options):
        yield


@WAYS
@pytest.mark.usefixtures("serializable")
def test_a_serialization_failure_runs_the_whole_transaction_again(mode: str, way: str) -> None:
    call = a_call(mode=mode)
    work = Contended(call, lambda run: elsewhere(lambda: work.add(1)) if run == 1 else None)
    assert go(way, call, work) == "booked"
    assert (work.book.runs, work.total, bookings(call), status_of(call)) == (2, 11, 1, Status.COMPLETED)


@WAYS
@pytest.mark.usefixtures("serializable")
def test_a_serialization_failure_that_is_found_at_the_completion_does_too(mode: str, way: str) -> None:
    call = a_call(mode=mode)

    def rival() -> None:
        with another_alias(ALIAS, **connections["default"].settings_dict), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            LedgerEntry.objects.create(reference="skew", account="cash", amount=total("skew"))

    def work(attempt: object = None) -> tuple[str, Reply]:
        seen = total("skew", ALIAS)
        LedgerEntry.objects.using(ALIAS).create(reference="skew", account="cash", amount=seen + 1)
        result = book()
        if book.runs == 1:
            elsewhere(rival)
        return result

    book = Booking(call, using=ALIAS)
    assert go(way, call, work) == "booked"
    assert (book.runs, bookings(call), status_of(call)) == (2, 1, Status.COMPLETED)


def total(reference: str, using: str = "default") -> int:
    return sum(LedgerEntry.objects.using(using).filter(reference=reference).values_list("amount", flat=True))


@WAYS
@pytest.mark.usefixtures("serializable")
def test_patience_ends_after_three_times(mode: str, way: str) -> None:
    call = a_call(mode=mode)
    work = Contended(call, lambda run: elsewhere(lambda: work.add(1)))
    with pytest.raises(OperationalError):
        go(way, call, work)
    assert (work.book.runs, work.total, bookings(call)) == (3, 3, 0)
    assert IdempotencyKey.objects.filter(id=call.id).exists() is (way == "late")


@pytest.mark.usefixtures("serializable")
def test_a_whole_handler_may_have_been_outside_so_it_does_not_run_again() -> None:
    call = a_call()
    work = Contended(call, lambda run: elsewhere(lambda: work.add(1)))
    with pytest.raises(OperationalError):
        run_call(call, work, ALIAS)
    assert (work.book.runs, bookings(call), status_of(call)) == (1, 0, Status.UNKNOWN)
    assert row_of(call).last_error_code == "OperationalError"


@WAYS
def test_the_victim_of_a_deadlock_runs_again(mode: str, way: str, vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("one writer at a time cannot deadlock")
    call = a_call(mode=mode)
    other = LedgerEntry.objects.create(reference="other", account="cash", amount=0)
    holds_other, wants_shared = Event(), Event()

    def rival() -> None:
        with transaction.atomic():
            if vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL deadlock_timeout = '1min'")  # whoever looks first is the victim
            else:
                # The victim is the one that wrote less.
                LedgerEntry.objects.bulk_create(
                    [LedgerEntry(reference="ballast", account="cash", amount=0) for _ in range(50)]
                )
            LedgerEntry.objects.filter(pk=other.pk).update(amount=1)
            holds_other.set()
            assert wants_shared.wait(60)
            work.add(1)

    def interfere(run: int) -> None:
        if run == 1:
            work.add(10, ALIAS)
            wants_shared.set()
            wait_until(lambda: elsewhere(somebody_waits_for_a_lock))
        LedgerEntry.objects.using(ALIAS).filter(pk=other.pk).update(amount=2)

    work = Contended(call, interfere)
    with another_alias(ALIAS), running("default", rival) as outcome:
        assert holds_other.wait(60)
        assert go(way, call, work) == "booked"
        outcome.result(60)
    assert (work.book.runs, work.total, bookings(call), status_of(call)) == (2, 11, 1, Status.COMPLETED)


@WAYS
def test_a_file_that_is_busy_is_tried_again(mode: str, way: str, vendor: str) -> None:
    if vendor != "sqlite":
        pytest.skip("only a file is locked as a whole")
    call = a_call(mode=mode)
    work = Contended(call, lambda run: None)
    locked, failed = Event(), Event()

    def rival() -> None:
        with transaction.atomic():
            locked.set()
            assert failed.wait(60)

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except OperationalError:
            failed.set()
            raise

    options = {**connection.settings_dict["OPTIONS"], "timeout": 0.05}
    attempt = claimed(call) if way == "late" else None
    with another_alias(ALIAS, OPTIONS=options), running("default", rival) as outcome:
        assert locked.wait(60)
        with connections[ALIAS].execute_wrapper(watch):
            if attempt is None:
                assert run_atomic(call, work, ALIAS) == "booked"
            else:
                attempt.using = ALIAS
                assert finish(attempt, work, rerun=True) == "booked"
        outcome.result(60)
    assert failed.is_set()
    assert (work.book.runs, bookings(call), status_of(call)) == (1, 1, Status.COMPLETED)
