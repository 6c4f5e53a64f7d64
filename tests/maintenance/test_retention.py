"""Events and counts have retentions of their own; what nobody has settled keeps its story."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import OperationalError, ProgrammingError, connection
from django.db.models import Value
from django.utils import timezone

from django_idempotency import maintenance
from django_idempotency.fields import StatementNow
from django_idempotency.maintenance import Bounds
from django_idempotency.models import IdempotencyCount, IdempotencyEvent, MaintenanceRun
from django_idempotency.store.counts import merge_oldest_hour
from tests.kit.records import change, claimed, completed, doubtful

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

DAY = 86_400
SECOND = timedelta(seconds=1)


def event(age: timedelta, record: UUID | None = None) -> int:
    made = IdempotencyEvent.objects.create(record_id=record or uuid4(), kind="landed")
    IdempotencyEvent.objects.filter(pk=made.pk).update(at=StatementNow() - Value(age))
    return made.pk


def count(age: timedelta) -> int:
    made = IdempotencyCount.objects.create(minute="2000-01-01T00:00Z", operation=str(uuid4()), outcome="x", count=1)
    IdempotencyCount.objects.filter(pk=made.pk).update(minute=StatementNow() - Value(age))
    return made.pk


MAKE: dict[str, tuple[Any, str, Callable[[timedelta], int], timedelta]] = {
    "events": (IdempotencyEvent, "EVENT_RETENTION", event, timedelta(days=90)),
    "counts": (IdempotencyCount, "COUNT_RETENTION", count, timedelta(days=30)),
}


@pytest.mark.parametrize("name", MAKE)
def test_they_go_when_their_time_is_over_and_not_before(name: str) -> None:
    model, _, make, retention = MAKE[name]
    gone = make(retention + SECOND)
    make(retention - 60 * SECOND)
    assert maintenance.reap()[name] == 1
    (kept,) = model.objects.all()  # a count as old as that is one of its whole hour now
    assert kept.pk != gone


@pytest.mark.parametrize("name", MAKE)
def test_the_time_is_a_setting_and_none_keeps_for_ever(name: str, settings: Any) -> None:
    model, setting, make, _ = MAKE[name]
    make(timedelta(days=3000))
    settings.IDEMPOTENCY = {setting: None}
    assert maintenance.reap() == {}
    settings.IDEMPOTENCY = {setting: 3001 * DAY}
    assert maintenance.reap() == {}
    settings.IDEMPOTENCY = {setting: 2999 * DAY}
    assert maintenance.reap() == {name: 1}
    assert not model.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", MAKE)
def test_rows_that_another_transaction_holds_do_not_end_the_run(name: str) -> None:
    """Two nodes of Galera may delete the same rows: one COMMIT fails with a deadlock."""
    make, retention = MAKE[name][2:]
    for _ in range(3):
        make(retention + SECOND)

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("DELETE"):
            raise OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse):
        merged = 1 if name == "counts" else 0  # those of an old hour become one, which deletes the others
        assert +maintenance.reap() == {"contended": 3 + merged}
    assert MaintenanceRun.objects.get(job="reap").error == ""
    assert +maintenance.reap() == {name: 3}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", MAKE)
def test_a_database_that_refuses_to_delete_them_ends_the_run(name: str) -> None:
    make, retention = MAKE[name][2:]
    make(retention + SECOND)

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("DELETE"):
            raise ProgrammingError("permission denied")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse), pytest.raises(ProgrammingError):
        maintenance.reap()


@pytest.mark.parametrize("name", MAKE)
def test_they_go_in_batches_and_a_dry_run_only_counts(name: str) -> None:
    model, _, make, retention = MAKE[name]
    for _ in range(5):
        make(retention + SECOND)
    said = StringIO()
    call_command("idempotency_reap", "--dry-run", "--json", stdout=said)
    assert json.loads(said.getvalue()) == {name: 5}
    assert model.objects.count() == 5
    assert maintenance.reap(Bounds(batch_size=2, max_runtime=0)) == {name: 2}
    assert maintenance.reap(Bounds(batch_size=2)) == {name: 3}
    assert not model.objects.exists()


@pytest.mark.parametrize("status", ["pending", "in_progress", "unknown", "dead_letter"])
def test_an_unsettled_record_keeps_its_story_however_old(status: str) -> None:
    attempt = claimed() if status in ("pending", "in_progress") else doubtful()
    also: dict[str, dict[str, Any]] = {"dead_letter": {"reconcile_after": None}, "pending": {"deferred": True}}
    change(attempt, status=status, **also.get(status, {}))
    IdempotencyEvent.objects.all().delete()
    kept = event(timedelta(days=3000), attempt.call.id)
    event(timedelta(days=3000))
    assert maintenance.reap() == {"events": 1}
    assert IdempotencyEvent.objects.get().pk == kept


@pytest.mark.parametrize(
    ("bounds", "counted", "left"),
    [
        (Bounds(batch_size=2), 2, 0),
        (Bounds(batch_size=2, max_runtime=0), 1, 1),
        (Bounds(batch_size=2, dry_run=True), 1, 2),
    ],
)
def test_stories_that_are_kept_do_not_keep_others(bounds: Bounds, counted: int, left: int) -> None:
    attempt = doubtful()
    IdempotencyEvent.objects.all().delete()
    kept = {event(timedelta(days=3000), attempt.call.id) for _ in range(5)}
    gone = {event(timedelta(days=2000)) for _ in range(2)}

    assert maintenance.reap(bounds) == {"events": counted}

    remaining = set(IdempotencyEvent.objects.values_list("pk", flat=True))
    assert (remaining & kept, len(remaining & gone)) == (kept, left)


def test_a_settled_record_outlives_its_story() -> None:
    event(timedelta(days=91), completed().call.id)
    assert maintenance.reap() == {"events": 1}


def old_minutes(number: int) -> None:
    """Counts of one operation in minutes of one hour, two days ago."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
    for minute in range(1, number + 1):
        add(hour + timedelta(minutes=minute))


def add(minute: datetime) -> None:
    IdempotencyCount.objects.create(minute=minute, operation="tests.merged", outcome="x", count=2)


def test_the_minutes_of_an_old_hour_become_one() -> None:
    old_minutes(3)
    assert maintenance.reap()["counts"] == 0
    (merged,) = IdempotencyCount.objects.all()
    assert (merged.minute.minute, merged.count) == (0, 6)


@pytest.mark.django_db(transaction=True)
def test_an_hour_that_another_process_writes_to_is_merged_by_the_next_run() -> None:
    old_minutes(3)
    late = IdempotencyCount.objects.latest("minute").minute + timedelta(minutes=1)

    def write_first(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("DELETE"):
            add(late)
        return execute(sql, *rest)

    with connection.execute_wrapper(write_first):
        assert merge_oldest_hour("default") == 0
    assert sorted(IdempotencyCount.objects.values_list("count", flat=True)) == [2, 2, 2], "nothing was merged by halves"
    assert merge_oldest_hour("default") == 3
    assert IdempotencyCount.objects.get().count == 6
