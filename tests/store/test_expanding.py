"""A migration of a later release adds a column to the live table, while the code of today claims and completes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

import pytest
from django.db import connection
from django.db.migrations import AddField, Migration
from django.db.migrations.loader import MigrationLoader
from django.db.models import CharField

from django_idempotency.core.decisions import Replay
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import jobs
from django_idempotency.store.dashboard import Limits, load_groups
from testproject.payments.models import LedgerEntry
from tests.kit.calls import Booking, a_call
from tests.kit.rows import snapshot
from tests.kit.threads import actors, wait_until
from tests.store.verbs import ALL
from tests.store.worlds import a_world, check, favourable

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

APP = "django_idempotency"
ENOUGH = 20  # keys between two changes of the table


class Expand(Migration):
    """As such a migration is written: old code does not name the column, so the database gives it a value."""

    operations = [AddField("idempotencykey", "region", CharField(max_length=16, null=True, db_default="here"))]


def expand() -> None:
    with connection.schema_editor() as editor:
        Expand("later", APP).apply(MigrationLoader(connection).project_state(), editor)


def contract() -> None:
    with connection.schema_editor() as editor:
        Expand("later", APP).unapply(MigrationLoader(connection).project_state(), editor)


@pytest.fixture
def _expanded() -> Iterator[None]:
    expand()
    yield
    contract()


def regions() -> list[tuple[str | None, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT region, COUNT(*) FROM idempotency_key GROUP BY region")
        return list(cursor.fetchall())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_keys_are_claimed_and_completed_while_a_column_comes_and_goes(settings: Any, mode: str) -> None:
    settings.IDEMPOTENCY = {"CLAIM_LIMIT": 60, "PREPARED_STATEMENTS": True}
    done, stopped = list[str](), Event()

    def be_caller() -> None:
        while not stopped.is_set():
            call = a_call(mode=mode)
            assert run_call(call, Booking(call)) == "booked"
            assert isinstance(run_call(call, Booking(call)), Replay)
            done.append(call.key)

    with actors(3) as crowd:
        callers = [actor.start(be_caller) for actor in crowd]

        def let_them_work() -> None:
            before = len(done)
            wait_until(lambda: len(done) > before + ENOUGH or any(caller.done() for caller in callers))

        try:
            let_them_work()
            expand()
            let_them_work()
            ((region, count),) = regions()
            assert (region, count > ENOUGH) == ("here", True)
            contract()
            let_them_work()
        finally:
            stopped.set()
        for caller in callers:
            caller.result(60)
    assert sorted(LedgerEntry.objects.values_list("reference", flat=True)) == sorted(done)
    assert set(IdempotencyKey.objects.values_list("status", flat=True)) == {"completed"}


@pytest.mark.usefixtures("_expanded")
def test_every_statement_does_the_same_to_the_wider_table() -> None:
    for verb in ALL:
        for status in {status for each in verb.transitions for status in each.sources or [None]}:
            assert check(verb, *a_world(status, favourable(verb, status)))
            assert regions() in ([("here", 1)], []), "and the column keeps its value"


READS: list[Callable[[], Any]] = [
    partial(jobs.find_lost, 10, "default"),
    partial(jobs.find_waiting, 10, "default"),
    partial(jobs.find_doubts, 10, "default"),
    partial(jobs.find_resumable, 10, "default"),
    partial(jobs.find_past, 10, "default"),
    partial(load_groups, 60, 6, 60, Limits(10, 10, 10), "default"),
    lambda: list(IdempotencyKey.objects.with_time()),
]


@pytest.mark.usefixtures("_expanded")
def test_every_page_is_read_as_before() -> None:
    call = a_call()
    assert run_call(call, Booking(call)) == "booked"
    for read in READS:
        read()
    assert "region" not in (snapshot(call.id) or {})


@contextmanager
def before_its_migration() -> Iterator[None]:
    """The table is that of an earlier release: it lacks a column that the code names."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE idempotency_key RENAME COLUMN audit_seconds TO absent")
        try:
            yield
        finally:
            cursor.execute("ALTER TABLE idempotency_key RENAME COLUMN absent TO audit_seconds")


def test_code_that_comes_before_its_migration_runs_nothing() -> None:
    booking = Booking(a_call())
    with before_its_migration(), pytest.raises(StoreUnavailable):
        run_call(booking.call, booking)
    assert booking.runs == 0
    assert run_call(booking.call, booking) == "booked"
