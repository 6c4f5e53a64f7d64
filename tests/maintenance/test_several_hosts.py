"""Maintenance jobs as processes on several hosts: two schedulers send each of them, or a host's clock is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from django_idempotency import Status
from django_idempotency.core.progress import Progress
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from testproject.gateway.charges import Order
from testproject.gateway.ledger import Ledger
from testproject.http import Answer
from testproject.payments.models import Payment, Ride
from testproject.servers import ROOT, start_service
from tests.kit.databases import count_waiting, elsewhere
from tests.kit.processes import Client
from tests.kit.rows import put
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.processes, pytest.mark.vendor]

JOBS = ("reconcile", "resume", "work", "sweep", "reap")
RECORDS = 60
PAST, FUTURE = timedelta(minutes=-10), timedelta(minutes=10)
RETENTION = timedelta(days=1)


@pytest.fixture(autouse=True)
def _a_server_has_the_records(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite is for one machine, and its clock is that machine's")


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """What a host's processes find in their environment."""
    server = urlsplit(settings.DATABASE_URL)._replace(path="/" + connection.settings_dict["NAME"])
    return {**os.environ, "DATABASE_URL": urlunsplit(server), "TESTPROJECT_VAR": str(tmp_path), "GATEWAY_URL": ""}


@pytest.fixture
def ledger(host: dict[str, str]) -> Ledger:
    """The file in which the provider of every host notes its charges."""
    return Ledger(Path(host["TESTPROJECT_VAR"], "ledger.jsonl"))


def start(job: str, host: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "manage.py", f"idempotency_{job}", "--json"]
    return subprocess.Popen(command, cwd=ROOT, env=host, stdout=subprocess.PIPE, text=True)


def counts(run: subprocess.Popen[str]) -> Counter[str]:
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    return Counter(json.loads(said))


def due_for(job: str, key: str, moved: timedelta = PAST) -> UUID:
    """A record that this job handles when the time has come, which is so long from now."""
    at, owner = timezone.now() + moved, User.objects.get_or_create(username="alice")[0].pk
    wanted = {"owner": owner, "origin": "here", "target": key, "amount": 1}
    ride = {"run_name": "rides.create", "arguments": json.dumps(wanted), "progress": Progress().dump()}
    payment = {"operation": "payments.create", "principal": f"user:{owner}"}
    due: dict[str, tuple[Status, dict[str, Any]]] = {
        "sweep": (Status.IN_PROGRESS, {"locked_until": at}),
        "reconcile": (Status.UNKNOWN, {"reconcile_after": at, "grace_until": at, **payment}),
        "resume": (Status.UNKNOWN, {"reconcile_after": at, "on_lost_lease": "resume", **ride}),
        "work": (Status.PENDING, {"locked_until": at, "on_lost_lease": "resume", **ride}),
        "reap": (Status.COMPLETED, {"expires_at": at}),
    }
    status, columns = due[job]
    return put(status, key=key, attempt_token=uuid4(), **columns)


@contextmanager
def held(count: int) -> Iterator[None]:
    """At the end of the block every record is locked, until so many sessions wait for one."""
    with transaction.atomic():
        list(IdempotencyKey.objects.select_for_update().values_list("id"))
        yield
        wait_until(lambda: elsewhere(count_waiting) == count)  # in here it is shown one state of the server


EVENTS = {"sweep": ["T6"], "reconcile": ["T10", "T9"], "resume": ["T7"], "work": [], "reap": []}
HANDLED = ("unknown", "landed", "not_executed", "deleted")  # by the names of what a run counts


@pytest.mark.parametrize("job", JOBS)
def test_two_schedulers_run_a_job_at_the_same_time(job: str, host: dict[str, str], ledger: Ledger) -> None:
    """Both have read the same page when the first record is let go."""
    records = [due_for(job, str(number)) for number in range(RECORDS)]
    charged = records[::2] if job == "reconcile" else []
    for row in IdempotencyKey.objects.filter(id__in=charged):
        ledger.charge(Order(1, "EUR", row.key), row.derive("charge"), dedupe=False)

    with held(2):
        runs = [start(job, host) for _ in range(2)]
    found = sum(map(counts, runs), Counter[str]())

    assert sum(found[name] for name in HANDLED) == RECORDS
    assert found["failed"] == 0
    noted = IdempotencyEvent.objects.values_list("record_id", "transition")
    assert sorted({transition for _, transition in noted}) == EVENTS[job]
    assert Counter(record for record, _ in noted) == (dict.fromkeys(records, 1) if EVENTS[job] else {})
    assert Payment.objects.count() == len(charged)
    rides = RECORDS if job in ("resume", "work") else 0
    assert Ride.objects.count() == rides
    assert len(ledger.charges()) == len(charged) + rides
    again = counts(start(job, host))
    assert not again, "nothing is left"


@pytest.fixture(params=["+1h", "-1h"])
def wrong_host(request: pytest.FixtureRequest, host: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same for a host whose clock is wrong. Time passes there as fast as anywhere."""
    if shutil.which("faketime") is None:
        pytest.skip("NOT TESTED: wrong clocks need Debian's faketime")
    command = ["faketime", "-m", "-f", request.param, "env"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    named = dict(line.split("=", 1) for line in said.splitlines() if line.startswith(("LD_PRELOAD=", "FAKETIME")))
    # Version 0.9.10 of its library refuses the call by which Python sleeps.
    sleep = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"
    Path(tmp_path, "sitecustomize.py").write_text(sleep)
    return {**host, **named, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "PYTHONPATH": str(tmp_path)}


def test_a_job_on_a_host_with_a_wrong_clock_handles_what_is_due_and_nothing_else(
    wrong_host: dict[str, str], host: dict[str, str]
) -> None:
    early = [due_for(job, f"{job} later", FUTURE) for job in JOBS]
    before = list(IdempotencyKey.objects.order_by("id").values())
    due = [due_for(job, f"{job} now") for job in JOBS]

    found = {job: counts(start(job, wrong_host)) for job in JOBS}

    assert found["sweep"]["unknown"] == found["reap"]["deleted"] == 1
    assert all(found[job]["landed"] + found[job]["not_executed"] for job in ("reconcile", "resume", "work"))
    assert list(IdempotencyKey.objects.filter(id__in=early).order_by("id").values()) == before
    left = dict(IdempotencyKey.objects.filter(id__in=due).values_list("key", "status"))
    assert left == {
        "sweep now": "unknown",
        "reconcile now": "failed_retryable",
        "resume now": "completed",
        "work now": "completed",
    }
    assert codes(wrong_host) >= {"clocks-apart"}
    assert "clocks-apart" not in codes(host)


def codes(host: Mapping[str, str]) -> set[str]:
    """What the doctor finds."""
    command = [sys.executable, "manage.py", "idempotency_doctor", "--json"]
    said = subprocess.run(command, cwd=ROOT, env=host, capture_output=True, text=True).stdout
    return {each["code"] for each in json.loads(said)["findings"]}


def test_a_server_with_a_wrong_clock_claims_and_replays_by_the_databases(
    wrong_host: dict[str, str], tmp_path: Path
) -> None:
    url = wrong_host["DATABASE_URL"]
    service = start_service(tmp_path, database_url=url, gateway_url="", workers=1, threads=2, environment=wrong_host)

    def ask() -> Answer:
        return Client(service.url).post("/conformance/echo", {"amount": 1}, key="key")

    def is_replay(**columns: Any) -> bool:
        IdempotencyKey.objects.update(**columns)
        return "Idempotency-Replayed" in ask().headers

    try:
        assert is_far(parsedate_to_datetime(ask().headers["Date"])), "the server's own clock is wrong"
        row = IdempotencyKey.objects.get()
        assert row.expires_at is not None
        assert not any(map(is_far, (row.created_at, row.last_run_at, row.completed_at, row.expires_at - RETENTION)))
        assert is_replay(expires_at=timezone.now() + FUTURE)
        assert not is_replay(expires_at=timezone.now() + PAST), "it ran anew"
        running = {"status": "in_progress", "expires_at": None, "response_status": None}
        IdempotencyKey.objects.update(**running, locked_until=timezone.now() + FUTURE)
        assert ask().json()["code"] == "idempotency_key_in_progress"
        IdempotencyKey.objects.update(locked_until=timezone.now() + PAST)
        assert ask().json()["code"] == "idempotency_outcome_unknown"
    finally:
        service.stop()


def is_far(moment: datetime | None) -> bool:
    """Whether it is further from now than half of what the wrong clocks are off."""
    assert moment is not None
    return abs(moment - timezone.now()) > timedelta(minutes=30)
