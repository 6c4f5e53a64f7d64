"""Maintenance jobs and commands while the database is contended, away or full of work."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from time import monotonic
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from django_idempotency import maintenance
from django_idempotency.flow import job_run
from django_idempotency.maintenance import Bounds
from django_idempotency.models import MaintenanceRun
from tests.kit.databases import nobody_answers
from tests.kit.records import age, claimed, completed, status_of

pytestmark = pytest.mark.vendor

NOTE = MaintenanceRun._meta.db_table


@contextmanager
def contended_notes(times: int) -> Iterator[list[str]]:
    """Galera refuses this many writes of the job's own note, as it does when two nodes write the same row."""
    refused: list[str] = []

    def refuse(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if NOTE in sql and sql.startswith(("INSERT", "UPDATE")) and len(refused) < times:
            refused.append(sql)
            raise OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        yield refused


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("times", [1, 2, 1000])
def test_a_contended_note_of_a_run_never_ends_the_run(times: int, caplog: pytest.LogCaptureFixture) -> None:
    attempt = claimed()
    age(attempt, "locked_until")
    maintenance.sweep(Bounds(dry_run=True))
    with contended_notes(times) as refused:
        assert maintenance.sweep() == {"unknown": 1}
    assert refused
    assert status_of(attempt) == "unknown"
    if times < 1000:
        assert json.loads(MaintenanceRun.objects.get(job="sweep").counts) == {"unknown": 1}, "written by a repeat"
    else:
        assert "The run of sweep could not be recorded" in caplog.text


@pytest.mark.django_db
def test_a_sweep_of_many_leases_logs_one_line_per_operation(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "django_idempotency")
    for operation in ("pay", "pay", "pay", "ship", "ship"):
        age(claimed(operation), "locked_until")
    assert maintenance.sweep() == {"unknown": 5}
    told = [each for each in caplog.records if "expired" in each.getMessage()]
    loud = [each.getMessage() for each in told if each.levelno >= logging.INFO]
    assert sorted(each.split(":")[0] for each in loud) == [
        "2 leases of the operation 'ship' expired",
        "3 leases of the operation 'pay' expired",
    ]
    assert len(told) == 7, "each record is named below INFO"


@pytest.mark.django_db
def test_each_batch_logs_what_it_found(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(4):
        age(claimed("pay"), "locked_until")
    maintenance.sweep(Bounds(batch_size=2))
    loud = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage().split(":")[0] for each in loud] == ["2 leases of the operation 'pay' expired"] * 2


@pytest.mark.django_db
def test_a_worker_ends_after_its_longest_runtime() -> None:
    began = monotonic()
    call_command("idempotency_work", "--forever", "--max-runtime=0.5", "--every=0.05", stdout=StringIO())
    assert 0.4 < monotonic() - began < 5


@pytest.mark.django_db
def test_a_pause_does_not_outlast_the_run() -> None:
    for _ in range(3):
        age(completed(), "expires_at")
    began = monotonic()
    maintenance.reap(Bounds(batch_size=1, share=1e-6, max_runtime=0.2))
    assert monotonic() - began < 5


class Clock:
    """A clock that moves when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(job_run, "monotonic", lambda: clock.now)
    monkeypatch.setattr(job_run, "sleep", clock.sleep)
    return clock


@pytest.mark.django_db
def test_a_pause_follows_the_time_that_the_batch_took(clock: Clock) -> None:
    for _ in range(4):
        age(completed(), "expires_at")
    batches = iter([1.0, 8.0, 0.0, 2.0])

    def work(counts: Counter[str]) -> None:
        clock.now += next(batches)

    maintenance.reap(Bounds(batch_size=1, share=0.2, progress=work))
    assert clock.pauses == pytest.approx([4, 32, 0, 8])


@pytest.mark.django_db
def test_a_run_without_a_share_never_pauses(clock: Clock) -> None:
    for _ in range(2):
        age(completed(), "expires_at")

    def work(counts: Counter[str]) -> None:
        clock.now += 5

    maintenance.reap(Bounds(batch_size=1, progress=work))
    assert set(clock.pauses) == {0}


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan")])
def test_a_share_is_a_part_of_one(share: float) -> None:
    with pytest.raises(ValueError, match="share must be more than 0 and at most 1"):
        Bounds(using="default", share=share)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "command",
    [
        ("idempotency_doctor",),
        ("idempotency_stats",),
        ("idempotency_inspect", "key"),
        ("idempotency_resolve", "5f1c7fd0-53d4-5d6a-9d0a-000000000000", "--try-again", "--by=ops", "--reason=r"),
        ("idempotency_sweep",),
        ("idempotency_work",),
    ],
    ids=lambda command: command[0],
)
def test_a_command_says_that_the_database_is_away_without_a_traceback(command: tuple[str, ...]) -> None:
    output = StringIO()
    with nobody_answers(), pytest.raises(CommandError) as raised:
        call_command(*command, stdout=output)
    assert "The database did not answer, or reported an error: OperationalError" in f"{output.getvalue()}{raised.value}"


@pytest.mark.django_db(transaction=True)
def test_the_doctors_json_says_it_too() -> None:
    output = StringIO()
    with nobody_answers(), pytest.raises(CommandError):
        call_command("idempotency_doctor", "--json", stdout=output)
    said = json.loads(output.getvalue())
    assert (said["healthy"], [each["code"] for each in said["findings"]]) == (False, ["store-unavailable"])
