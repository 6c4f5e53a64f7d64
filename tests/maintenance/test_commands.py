"""What a person at a terminal, or cron, is told."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, OperationalError, connection
from django.db.models import F, Value
from django.utils import timezone

from django_idempotency import maintenance
from django_idempotency.fields import StatementNow
from django_idempotency.management.commands import idempotency_work
from django_idempotency.models import IdempotencyKey, MaintenanceRun
from django_idempotency.monitoring.durations import load_operations
from django_idempotency.monitoring.findings import describe_plainly
from django_idempotency.monitoring.health import Clock, examine
from django_idempotency.store import attempts
from django_idempotency.store.operations import StoredOperation
from tests.kit.records import change, claimed, completed, dead_letter, doubtful

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

PLANTED = '{"id": 7}'


def said(*arguments: str) -> str:
    output = StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue().strip()


def test_stats_count_the_states_and_say_how_the_jobs_are() -> None:
    for make in (completed, completed, claimed, doubtful):
        make()
    maintenance.sweep()

    figures = json.loads(said("idempotency_stats", "--json", "--database=default"))
    text = said("idempotency_stats").splitlines()

    assert figures["statuses"] == {"completed": 2, "in_progress": 1, "unknown": 1}
    assert (figures["unknown"], figures["dead_letters"], list(figures["jobs"])) == (1, 0, ["sweep"])
    assert text[:3] == ["completed: 2", "in progress: 1", "unknown: 1"]
    assert text[3].startswith("oldest unknown outcome: ")
    assert text[-2].startswith("last sweep: ")
    assert text[-1].startswith("! 1 unknown outcome needs a person")


def test_stats_pass_complaints_on() -> None:
    MaintenanceRun.objects.create(job="reap", error="OperationalError: gone")
    assert said("idempotency_stats").splitlines()[-1] == "! The last run of reap failed: OperationalError: gone"


def test_inspect_shows_contents_only_when_asked() -> None:
    attempt = completed()
    change(attempt, arguments='{"card": "4242"}', response_headers='[["Location", "/payments/secret-7"]]')
    for form in ("--no-color", "--json"):
        assert PLANTED not in (hidden := said("idempotency_inspect", str(attempt.call.id), form).replace("\\", ""))
        assert "4242" not in hidden
        assert "secret-7" not in hidden, "the admin asks for a permission before it shows headers"
        assert PLANTED in (shown := said("idempotency_inspect", str(attempt.call.id), form, "--body").replace("\\", ""))
        assert "4242" in shown
        assert "secret-7" in shown


@pytest.fixture
def _all_jobs_ran() -> None:
    for job in (maintenance.sweep, maintenance.reconcile, maintenance.resume, maintenance.reap):
        job()


def found(clock: Clock = timezone.now) -> str:
    return "\n".join(map(describe_plainly, examine("default", clock)))


@pytest.mark.usefixtures("_all_jobs_ran")
def test_doctor_is_content_with_a_system_in_order() -> None:
    completed()
    assert said("idempotency_doctor").splitlines()[0] == "nothing is wrong"
    assert json.loads(said("idempotency_doctor", "--json")) | {"advice": []} == {
        "healthy": True,
        "findings": [],
        "advice": [],
    }


@pytest.mark.usefixtures("_all_jobs_ran")
def test_advice_is_no_problem(vendor: str) -> None:
    """This server has PostgreSQL's default."""
    lines, data = said("idempotency_doctor").splitlines()[1:], json.loads(said("idempotency_doctor", "--json"))
    codes = ["lost-clients-unnoticed"] if vendor == "postgresql" else []
    assert [each["code"] for each in data["advice"]] == codes
    assert lines[::2] == [f"advice {each['code']}: {each['text']}" for each in data["advice"]]
    assert said("idempotency_doctor", "--ignore=lost-clients-unnoticed") == "nothing is wrong"


@pytest.mark.usefixtures("_all_jobs_ran")
def test_a_finding_can_be_accepted() -> None:
    dead_letter()
    with pytest.raises(CommandError, match="Problems found: 1"):
        said("idempotency_doctor")
    assert said("idempotency_doctor", "--ignore=dead-letters").splitlines()[0] == "nothing is wrong"
    with pytest.raises(CommandError, match="invalid choice: 'dead'"):
        said("idempotency_doctor", "--ignore=dead")


def test_doctor_exits_with_1_and_says_which_job_never_ran() -> None:
    output = StringIO()
    with pytest.raises(CommandError, match="4") as caught:
        call_command("idempotency_doctor", stdout=output)
    assert caught.value.returncode == 1
    assert output.getvalue().splitlines()[:8:2] == [
        f"warning job-never-ran: The maintenance job {job} has never run to its end: schedule it with Celery beat or "
        "cron."
        for job in ("sweep", "reconcile", "resume", "reap")
    ]


@pytest.mark.usefixtures("_all_jobs_ran")
@pytest.mark.parametrize(
    ("job", "ago", "wrong"), [("sweep", 590, False), ("sweep", 610, True), ("resume", 610, True), ("reap", 610, False)]
)
def test_doctor_notices_when_a_job_stopped(job: str, ago: int, wrong: bool) -> None:
    MaintenanceRun.objects.filter(job=job).update(finished_at=StatementNow() - Value(timedelta(seconds=ago)))
    assert (f"The last run of {job} ended" in found()) is wrong


@pytest.mark.usefixtures("_all_jobs_ran")
@pytest.mark.parametrize(("age", "wrong"), [(3590, False), (3610, True)])
def test_doctor_notices_an_old_doubt(age: int, wrong: bool) -> None:
    change(doubtful(), created_at=F("created_at") - timedelta(seconds=age))
    assert ("1 outcome is unknown" in found()) is wrong


@pytest.mark.usefixtures("_all_jobs_ran")
def test_doctor_notices_a_dead_letter() -> None:
    dead_letter()
    assert "needs a person" in found()


@pytest.mark.usefixtures("_all_jobs_ran")
@pytest.mark.parametrize(("hours", "wrong"), [(23, True), (24, False), (None, False)])
def test_doctor_notices_a_retention_below_a_day(hours: int | None, wrong: bool, settings: Any) -> None:
    settings.IDEMPOTENCY = {"RETENTION": hours and hours * 3600}
    assert ("IDEMPOTENCY['RETENTION']" in found()) is wrong
    completed("tests.kept", retention=hours and timedelta(hours=hours))
    assert ("Operation tests.kept keeps its responses" in found()) is wrong


@pytest.mark.usefixtures("_all_jobs_ran")
@pytest.mark.parametrize(("runs", "seconds", "wrong"), [(100, 4, True), (100, 3, False), (99, 4, False)])
def test_doctor_notices_a_lease_below_three_slow_runs(runs: int, seconds: int, wrong: bool) -> None:
    for _ in range(runs):
        completed("tests.slow", lease=timedelta(seconds=10))
    IdempotencyKey.objects.update(completed_at=F("last_run_at") + timedelta(seconds=seconds))
    assert ("make the lease at least 12 s" in found()) is wrong


def test_runs_in_atomic_mode_have_no_duration() -> None:
    """One statement writes when it began and when it ended: they would make every lease look long enough."""
    completed("tests.atomic")
    IdempotencyKey.objects.update(completed_at=F("last_run_at"))
    assert load_operations("default")["tests.atomic"].seconds == []
    IdempotencyKey.objects.update(completed_at=F("last_run_at") + timedelta(seconds=1))
    assert load_operations("default")["tests.atomic"].seconds == [1]


@pytest.mark.usefixtures("_all_jobs_ran")
@pytest.mark.parametrize("age", [590, 620])
def test_doctor_notices_work_that_no_worker_begins(age: int) -> None:
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.health", "{}", "{}", 0), 60)
    IdempotencyKey.objects.update(last_run_at=F("created_at") - timedelta(seconds=age))
    assert ("no worker has begun it" in found()) is (age > 600)


@pytest.mark.usefixtures("_all_jobs_ran")
@pytest.mark.parametrize(("off", "wrong"), [(-3, True), (-1, False), (0, False), (1, False), (3, True)])
def test_doctor_notices_clocks_that_are_apart(off: int, wrong: bool) -> None:
    def clock() -> datetime:
        return timezone.now() + timedelta(seconds=off)

    assert ("clocks of this machine and of the database" in found(clock)) is wrong


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--batch-size=0", "--batch-size must be at least 1"),
        ("--batch-size=100001", "and 100000 at most"),
        ("--batch-size=99999999999999999999", "and 100000 at most"),
        ("--share=0", "--share must be more than 0, and 1 at most"),
        ("--share=-1", "--share must be"),
        ("--share=1.1", "--share must be"),
        ("--share=nan", "--share must be"),
        ("--max-runtime=nan", "--max-runtime must be a number of seconds, from 0 to 31536000"),
        ("--max-runtime=-0.1", "--max-runtime must be"),
        ("--max-runtime=inf", "--max-runtime must be"),
        ("--database=nope", "--database must be one of default"),
    ],
)
def test_a_job_refuses_what_it_cannot_run_with(option: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said("idempotency_sweep", option)


def test_a_job_takes_what_it_can_run_with() -> None:
    assert said("idempotency_sweep", "--batch-size=100000", "--share=0.1", "--max-runtime=0") == "nothing to do"


@pytest.mark.parametrize("every", ["nan", "-1", "inf"])
def test_a_worker_refuses_to_look_again_without_a_pause(every: str) -> None:
    with pytest.raises(CommandError, match="--every must be a number of seconds"):
        said("idempotency_work", "--forever", f"--every={every}")


@pytest.mark.parametrize("error", [OperationalError, InternalError])
def test_a_worker_looks_again_when_the_database_failed(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """InternalError: PostgreSQL's read-only server after a failover."""

    def fails(bounds: maintenance.Bounds) -> Counter[str]:
        raise error("cannot execute UPDATE in a read-only transaction")

    monkeypatch.setattr(idempotency_work, "work", fails)
    idempotency_work.Command()._look(maintenance.Bounds(), {})
    assert "the worker looks again later" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_worker_looks_again_at_a_server_that_has_become_read_only(
    vendor: str, caplog: pytest.LogCaptureFixture
) -> None:
    if vendor != "postgresql":
        pytest.skip("the switch is PostgreSQL's")
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    try:
        idempotency_work.Command()._look(maintenance.Bounds(), {})
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
    assert "read-only transaction" in caplog.text
    assert "the worker looks again later" in caplog.text


NO_TEXT = "\udcff"  # what a terminal's byte 0xff arrives as
SETTLE = ("--landed=200", "--by=ada", "--reason=seen")


@pytest.mark.parametrize(
    "command",
    [
        ("idempotency_inspect", NO_TEXT),
        ("idempotency_resolve", NO_TEXT, *SETTLE),
        ("idempotency_resolve", "a-key", *SETTLE, f'--body="{NO_TEXT}"'),
        ("idempotency_resolve", "a-key", *SETTLE, f"--content-type={NO_TEXT}"),
        ("idempotency_resolve", "a-key", *SETTLE, f"--by={NO_TEXT}"),
        ("idempotency_resolve", "a-key", *SETTLE, f"--reason={NO_TEXT}"),
    ],
)
def test_what_is_no_text_is_refused_with_a_sentence(command: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="this is not UTF-8 text"):
        said(*command)


@pytest.mark.parametrize(
    "command",
    [
        ("idempotency_stats",),
        ("idempotency_doctor",),
        ("idempotency_inspect", "a-key"),
        ("idempotency_resolve", "a-key", "--try-again", "--by=ada", "--reason=seen"),
        ("idempotency_resolve", "a-key", "--try-again", "--by=ada", "--reason=seen", "--dry-run"),
    ],
)
def test_every_command_says_which_databases_there_are(command: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="--database must be one of default"):
        said(*command, "--database=nope")


def test_the_schedule_needs_django_celery_beat_and_says_so(settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_celery_beat"]
    with pytest.raises(CommandError, match="not in INSTALLED_APPS"):
        said("idempotency_install_schedule")
