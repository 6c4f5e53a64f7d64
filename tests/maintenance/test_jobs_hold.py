"""One bad record, one slow provider or one caller's transaction does not spoil the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from django_idempotency import maintenance, signals
from django_idempotency.core.refs import Ref
from django_idempotency.flow import job_run
from django_idempotency.flow.reconcile import LONGEST_RETRY_SECONDS
from django_idempotency.maintenance import Bounds
from django_idempotency.models import IdempotencyEvent, IdempotencyKey, MaintenanceRun
from django_idempotency.monitoring.jobs import SCHEDULED
from django_idempotency.reconciliation import Inconclusive, Landed, NotLanded, Outcome, Verdict, reconciler, resolve
from django_idempotency.store import jobs, limits
from django_idempotency.tasks import beat_schedule
from testproject.servers import ROOT
from tests.kit.databases import without_autocommit
from tests.kit.records import (
    CREATED,
    OPERATION,
    book,
    bookings,
    change,
    claimed,
    completed,
    doubtful,
    row_of,
    status_of,
)  # fmt: skip
from tests.kit.threads import at_once

pytestmark = pytest.mark.vendor

Ask = Callable[[IdempotencyKey], Verdict]


@pytest.fixture
def answering(registrations: None) -> Callable[[Ask], None]:
    asks: list[Ask] = []
    reconciler(OPERATION)(lambda record: asks[0](record))
    return asks.append


@pytest.fixture
def resolutions() -> Iterator[list[UUID]]:
    """The records that the signal named."""
    seen: list[UUID] = []

    def note(record: UUID, **payload: Any) -> None:
        seen.append(record)

    signals.resolved.connect(note)
    yield seen
    signals.resolved.disconnect(note)


@pytest.mark.django_db
def test_a_record_that_nobody_can_read_does_not_keep_the_others_waiting(answering: Callable[[Ask], None]) -> None:
    bad, good = doubtful(), doubtful()
    change(bad, reconcile_after=F("created_at") - timedelta(hours=1), progress="no JSON")
    answering(lambda record: Landed(CREATED))
    said = StringIO()

    with pytest.raises(CommandError, match="1 of the records failed"):
        call_command("idempotency_reconcile", "--json", stdout=said)

    assert json.loads(said.getvalue()) == {"failed": 1, "landed": 1}
    assert (status_of(bad), status_of(good)) == ("unknown", "completed")


@pytest.mark.django_db
@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 8])
def test_pages_full_of_such_records_do_not_either(answering: Callable[[Ask], None], batch_size: int) -> None:
    """Each is tried once in a run, and the others get through."""
    bad, good = [doubtful() for _ in range(5)], [doubtful() for _ in range(3)]
    for each in bad:
        change(each, reconcile_after=F("created_at") - timedelta(hours=1), progress="no JSON")
    answering(lambda record: Landed(CREATED))

    assert maintenance.reconcile(Bounds(batch_size=batch_size)) == {"failed": 5, "landed": 3}
    assert {status_of(each) for each in good} == {"completed"}
    assert maintenance.reconcile(Bounds(batch_size=batch_size)) == {"failed": 5}


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", [{"retry_in": "30"}, {"reason": None}], ids=repr)
def test_a_verdict_that_makes_no_sense_costs_a_try_as_any_other(
    answering: Callable[[Ask], None], wrong: Any, settings: Settings
) -> None:
    settings.IDEMPOTENCY = {"RECONCILE_TRIES": 2}
    attempt = doubtful()
    answering(lambda record: Inconclusive(**wrong))
    assert maintenance.reconcile() == {"inconclusive": 1}
    change(attempt, reconcile_after=F("created_at"))
    assert maintenance.reconcile() == {"dead_letter": 1}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("retry_in", "seconds"),
    [
        (40, 40), (40.5, 40), (timedelta(minutes=2), 120),
        (-5, 1), (timedelta.min, 1), (nan, 1),
        (timedelta.max, LONGEST_RETRY_SECONDS), (inf, LONGEST_RETRY_SECONDS),
    ],
)  # fmt: skip
def test_a_reconciler_may_say_when_to_ask_again(
    answering: Callable[[Ask], None], retry_in: Any, seconds: float
) -> None:
    attempt = doubtful()
    answering(lambda record: Inconclusive(retry_in))

    assert maintenance.reconcile() == {"inconclusive": 1}

    due = row_of(attempt).reconcile_after
    assert due is not None
    assert abs((due - timezone.now()).total_seconds() - seconds) < 15


@pytest.mark.django_db
def test_a_database_that_is_gone_ends_the_run_and_the_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        change(claimed(), locked_until=F("created_at"))
    tried: list[UUID] = []

    def lapse(ref: Ref) -> bool:
        tried.append(ref.id)
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(maintenance, "lapse", lapse)
    with pytest.raises(OperationalError):
        maintenance.sweep()

    assert len(tried) == 1
    assert MaintenanceRun.objects.get(job="sweep").error == "OperationalError: the server closed the connection"


@pytest.mark.django_db
def test_a_row_that_another_run_holds_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    change(claimed(), locked_until=F("created_at"))

    def lapse(ref: Ref) -> bool:
        raise OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")

    monkeypatch.setattr(maintenance, "lapse", lapse)
    assert maintenance.sweep() == {"contended": 1}


@pytest.mark.django_db
def test_the_time_limit_is_looked_at_between_two_polls(answering: Callable[[Ask], None]) -> None:
    for _ in range(3):
        doubtful()
    clock = iter([0.0, 0.0, 0.0, 5.0, 11.0, 11.0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_run, "monotonic", lambda: next(clock))
        answering(lambda record: Landed(CREATED))
        counts = maintenance.reconcile(Bounds(max_runtime=10))

    assert counts == {"landed": 2}


@pytest.mark.django_db
def test_every_turn_of_a_run_looks_at_what_was_due_when_the_run_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a long first turn would let the second one try again what has just failed."""
    looked: list[int] = []

    def look(limit: int, using: str, age: int) -> list[jobs.Due]:
        looked.append(age)
        return []

    monkeypatch.setattr(jobs, "find_waiting", look)
    monkeypatch.setattr(jobs, "find_unfinished", look)
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr(job_run, "monotonic", lambda: next(clock))
    assert maintenance.work() == {}
    assert looked == [10, 20]


@pytest.mark.django_db
def test_a_webhook_about_a_settled_key_writes_nothing() -> None:
    attempt = completed()

    def write() -> Any:
        raise AssertionError("the write of a settled key ran")

    assert resolve(attempt.call.id, Landed(write=write), by="gateway") is Outcome.OVERTAKEN


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["failed", "completed"])
def test_evidence_about_a_failed_record_is_loud_and_changes_nothing(
    status: str, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = completed()
    change(attempt, status=status)
    before = row_of(attempt)

    for _ in range(2):  # the webhook is delivered twice
        outcome = resolve(attempt.call.id, Landed(write=book), by="gateway")
        assert outcome is (Outcome.TOO_LATE if status == "failed" else Outcome.OVERTAKEN)

    assert bookings() == 0
    assert (row_of(attempt).status, row_of(attempt).response_status) == (status, before.response_status)
    events = list(IdempotencyEvent.objects.values_list("transition", "kind", "actor"))
    errors = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    loud = status == "failed"
    assert events == ([("T13e", "confirmed too late", "gateway")] if loud else [])
    assert len(errors) == (1 if loud else 0)


def refused() -> Any:
    raise IntegrityError("there is such a payment already")


@pytest.mark.django_db
def test_a_write_that_is_refused_leaves_the_doubt_and_says_so() -> None:
    attempt = doubtful()
    with pytest.raises(IntegrityError):
        resolve(attempt.call.id, Landed(write=refused), by="gateway")
    assert status_of(attempt) == "unknown"


@pytest.mark.django_db(transaction=True)
def test_a_write_that_is_refused_because_the_key_was_settled_was_overtaken(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("one writer: nobody can settle it while this transaction is open")
    attempt = doubtful()

    def write() -> Any:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(settle_elsewhere, attempt.call.id).result(60) is Outcome.LANDED
        return refused()

    assert resolve(attempt.call.id, Landed(write=write), by="gateway") is Outcome.OVERTAKEN


def settle_elsewhere(record: UUID) -> Outcome:
    try:
        return resolve(record, Landed(CREATED), by="another webhook")
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_inside_a_callers_transaction_the_signal_waits_for_its_commit(resolutions: list[UUID]) -> None:
    kept, dropped = doubtful(), doubtful()

    with transaction.atomic():
        assert resolve(kept.call.id, Landed(write=book), by="gateway") is Outcome.LANDED
        assert resolutions == []
    assert resolutions == [kept.call.id]

    with transaction.atomic():
        resolve(dropped.call.id, Landed(write=book), by="gateway")
        transaction.set_rollback(True)

    assert (status_of(dropped), bookings(), resolutions) == ("unknown", 1, [kept.call.id])


@pytest.mark.django_db(transaction=True)
def test_without_autocommit_too_the_signal_waits_for_the_callers_commit(resolutions: list[UUID]) -> None:
    kept, dropped = doubtful(), doubtful()

    with without_autocommit():
        book()  # SQLite's transaction begins with a write
        assert resolve(dropped.call.id, Landed(write=book), by="gateway") is Outcome.LANDED
        transaction.rollback()
        assert resolve(kept.call.id, Landed(write=book), by="gateway") is Outcome.LANDED
        transaction.commit()
        assert resolutions == []
        transaction.set_autocommit(True)  # Django calls its hooks now

    assert (status_of(dropped), status_of(kept), resolutions) == ("unknown", "completed", [kept.call.id])


@pytest.mark.django_db(transaction=True)
def test_inside_a_callers_transaction_nothing_is_run_again() -> None:
    """A deadlock takes back what the caller wrote; a second try would commit without it."""
    attempt, tries = doubtful(), []

    def write() -> Any:
        tries.append(attempt)
        raise OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")

    with pytest.raises(OperationalError), transaction.atomic():
        resolve(attempt.call.id, Landed(write=write), by="gateway")
    assert len(tries) == 1

    with without_autocommit(), pytest.raises(OperationalError):
        resolve(attempt.call.id, Landed(write=write), by="gateway")
    assert len(tries) == 2

    with pytest.raises(OperationalError):
        resolve(attempt.call.id, Landed(write=write), by="gateway")
    assert len(tries) == 2 + limits.TRIES


@pytest.mark.django_db
def test_an_operator_hears_that_an_attempt_is_running() -> None:
    said = resolve(claimed().call.id, NotLanded(), by="ops", reason="r", operator=True)
    assert said is Outcome.RUNNING


@pytest.mark.django_db(transaction=True)
def test_two_first_runs_at_once_note_one_job() -> None:
    assert at_once([sweep_apart, sweep_apart]) == [{}, {}]
    assert [run.job for run in MaintenanceRun.objects.all()] == ["sweep"]


def sweep_apart() -> Counter[str]:
    try:
        return maintenance.sweep()
    finally:
        connections.close_all()


@pytest.mark.processes
def test_the_settings_may_ask_for_the_schedule() -> None:
    """Settings are read before any model can be imported."""
    code = "from django_idempotency.tasks import beat_schedule; print(*beat_schedule(sweep_zombies=15))"
    clean = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=clean, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout.split()) == (0, [job.task_name for job in SCHEDULED]), finished.stderr


def test_a_rhythm_for_a_task_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="'sweep'; there are sweep_zombies, reconcile_unknown"):
        beat_schedule(sweep=15)
