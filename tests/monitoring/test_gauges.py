"""The gauges show what is open now, in one bounded statement, and never break an export."""

from datetime import timedelta
from math import inf

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, generate_latest

from django_idempotency import maintenance
from django_idempotency.contrib.prometheus import RecordsCollector
from django_idempotency.flow.job_run import Bounds, record_run
from django_idempotency.models import IdempotencyKey, MaintenanceRun
from django_idempotency.reconciliation import Inconclusive, reconciler
from django_idempotency.store import attempts, gauges
from django_idempotency.store.operations import StoredOperation
from tests.kit.databases import nobody_answers
from tests.kit.records import change, claimed, completed, dead_letter, doubtful

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.monitoring.test_health"), pytest.mark.vendor]


def scrape() -> dict[str, float]:
    """What a scrape shows: the name with its label, and the value."""
    registry = CollectorRegistry()
    registry.register(RecordsCollector())
    lines = (line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#"))
    return {name.removeprefix("api_idempotency_"): float(value) for name, _, value in map(_split, lines)}


def _split(line: str) -> tuple[str, str, str]:
    return line.rpartition(" ")


def test_an_empty_table_shows_zeros_and_jobs_that_never_ran() -> None:
    found = scrape()
    jobs = {name: value for name, value in found.items() if name.startswith("job_")}
    assert set(jobs.values()) == {inf}
    assert len(jobs) == 4
    assert {value for name, value in found.items() if name not in jobs} == {0.0}


def test_each_state_is_counted_with_its_oldest_record() -> None:
    completed()
    claimed()
    doubtful()
    change(doubtful(), created_at=F("created_at") - timedelta(hours=2))
    dead_letter()
    found = scrape()
    assert {name: value for name, value in found.items() if name.startswith("open")} == {
        'open{state="dead_letter"}': 1,
        'open{state="in_progress"}': 1,
        'open{state="pending"}': 0,
        'open{state="unknown"}': 2,
    }
    assert 7200 <= found['oldest_seconds{state="unknown"}'] < 7300
    assert found["live"] == 5


def test_a_dead_letter_is_shown_for_as_long_as_it_is_one() -> None:
    attempt = dead_letter()
    assert scrape()['open{state="dead_letter"}'] == 1
    assert scrape()['open{state="dead_letter"}'] == 1
    change(attempt, status="failed_retryable")
    assert scrape()['open{state="dead_letter"}'] == 0


def test_overdue_leases_without_a_sweeper() -> None:
    claimed()
    change(claimed(), locked_until=F("created_at") - timedelta(seconds=1))
    assert scrape()["overdue"] == 1
    maintenance.sweep()
    assert scrape()["overdue"] == 0


@pytest.mark.usefixtures("registrations")
def test_unknown_outcomes_without_a_reconciler() -> None:
    doubtful("tests.attended")
    doubtful("tests.alone")
    assert scrape()["unattended"] == 2
    reconciler("tests.attended")(lambda record: Inconclusive())
    assert scrape()["unattended"] == 1


@pytest.mark.parametrize(
    ("code", "idle", "waiting"), [("", 0, 1), ("NotExecuted", 0, 0), ("NotExecuted", 10_000_000, 1)]
)
def test_work_that_no_worker_begins(code: str, idle: int, waiting: int) -> None:
    """Requeued work counts once its longest pause is over."""
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.health", "{}", "{}", 0), 60)
    change(attempt, last_error_code=code, last_run_at=F("created_at") - timedelta(seconds=idle))
    assert scrape()["waiting"] == waiting


def test_a_job_that_fails_does_not_look_as_if_it_had_succeeded() -> None:
    maintenance.sweep()
    MaintenanceRun.objects.update(succeeded_at=F("succeeded_at") - timedelta(hours=1))
    with pytest.raises(KeyError), record_run("sweep", Bounds()):
        raise KeyError
    assert MaintenanceRun.objects.get().error
    assert 3600 <= scrape()['job_success_age_seconds{maintenance_job="sweep"}'] < 3700


def test_a_large_table_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "COUNTED_EXACTLY", 50)
    for _ in range(400):
        claimed()
    assert IdempotencyKey.objects.count() == 400
    assert 200 < scrape()["live"] < 800  # 50 ids give the number to about a seventh


def test_open_records_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "COUNTED_AT_MOST", 3)
    for _ in range(4):
        doubtful()
    assert scrape()['open{state="unknown"}'] == 3


def test_one_statement_a_scrape() -> None:
    claimed()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        scrape()
    assert len(queries) == 1


def test_a_store_that_does_not_respond_takes_nothing_else_away(caplog: pytest.LogCaptureFixture) -> None:
    with nobody_answers():
        assert scrape() == {}
    assert "gauges could not be read" in caplog.text
