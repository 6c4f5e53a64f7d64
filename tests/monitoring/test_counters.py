"""Outcomes per minute: added up in memory, written apart from every request, by every process its own share."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_idempotency import json_reply, maintenance, signals
from django_idempotency.flow import run
from django_idempotency.models import IdempotencyCount
from django_idempotency.monitoring import outcomes
from django_idempotency.monitoring.outcomes import COUNTERS, MOST_BUCKETS
from django_idempotency.store import counts
from testproject.servers import ROOT
from tests.kit.celery_processes import broker, worker
from tests.kit.processes import database_beside, query, running_site
from tests.kit.threads import at_once, wait_until
from tests.monitoring.test_metrics import a_call

pytestmark = pytest.mark.vendor

ON = {"COUNT_OUTCOMES": True}
SHARED = "SELECT outcome, SUM(count) FROM idempotency_count GROUP BY outcome"


def written() -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for row in IdempotencyCount.objects.all():
        found[row.operation, row.outcome] = found.get((row.operation, row.outcome), 0) + row.count
    return found


@pytest.mark.django_db
def test_real_calls_are_counted_by_operation_and_outcome(settings: Any) -> None:
    settings.IDEMPOTENCY = ON
    reply = json_reply(201, {})
    for body in (b"{}", b"{}", b"{}", b"[]"):
        run.run_call(a_call(body), lambda attempt: (None, reply))
    COUNTERS.flush()
    counted = {outcome: count for (operation, outcome), count in written().items() if operation == "tests.metrics"}
    assert counted == {"reserve.created": 1, "completed": 1, "reserve.replay": 2, "reserve.key_misuse": 1}


@pytest.mark.django_db
def test_nothing_is_counted_unless_it_is_switched_on() -> None:
    signals.announce(signals.replayed, call=a_call(), using="default")
    assert not COUNTERS._counted
    assert COUNTERS._timer is None


@pytest.mark.django_db
def test_what_is_added_later_is_added_to_what_stands_there(settings: Any) -> None:
    settings.IDEMPOTENCY = ON
    for amount in (2, 3):
        signals.announce(signals.pruned, count=amount, using="default")
        COUNTERS.flush()
    assert written() == {("", "ttl_pruned"): 5}
    COUNTERS.flush()
    assert written() == {("", "ttl_pruned"): 5}


@pytest.mark.django_db
@pytest.mark.parametrize(("ago", "slot"), [(0.0, {0}), (59.0, {0, 1}), (600.0, {10, 9}), (3500.0, {58, 59})])
def test_a_count_stands_in_its_minute_by_the_databases_clock(ago: float, slot: set[int]) -> None:
    counts.accumulate(ago, "op", "x", 7, "default")
    row = IdempotencyCount.objects.get()
    assert (row.minute.second, row.minute.microsecond) == (0, 0)
    found = counts.read_slots(3600, 60, "default")["op", "x"]
    assert set(found) <= slot
    assert sum(found.values()) == 7


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_counts_of_hours_that_are_a_day_old_are_merged_and_none_is_lost(zone: str) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=30)
    for minute in (0, 1, 59, 60):
        for operation in ("one", "two"):
            at = hour + timedelta(minutes=minute)
            IdempotencyCount.objects.create(minute=at, operation=operation, outcome="x", count=minute + 1)
    counts.accumulate(60, "one", "x", 7, "default")
    with timezone.override(zone):
        maintenance.reap()
        maintenance.reap()
    kept = {(row.minute, row.operation): row.count for row in IdempotencyCount.objects.all()}
    old = {key: count for key, count in kept.items() if key[0] < timezone.now() - timedelta(days=1)}
    assert old == {
        (hour + timedelta(hours=later), name): count
        for later, count in ((0, 1 + 2 + 60), (1, 61))
        for name in ("one", "two")
    }
    assert sum(kept.values()) - sum(old.values()) == 7


@pytest.mark.django_db
@pytest.mark.parametrize(("ago", "seen"), [(3500, True), (3700, False)])
def test_only_the_asked_time_is_shown(ago: int, seen: bool) -> None:
    counts.accumulate(ago, "op", "x", 1, "default")
    assert bool(counts.read_slots(3600, 60, "default")) is seen


@pytest.mark.django_db
def test_operations_that_differ_in_case_are_two() -> None:
    for operation in ("a", "A", "a "):
        counts.accumulate(0, operation, "x", 1, "default")
    assert IdempotencyCount.objects.count() == 3


def post(browser: Browser, key: str) -> int:
    headers = {"Idempotency-Key": f'"{key}"', "Authorization": "Token alice-token"}
    data = {"amount": 100, "currency": "EUR", "customer": "ada"}
    return browser.post("/payments/", data, content_type="application/json", headers=headers).status_code


@pytest.mark.django_db(transaction=True)
def test_a_replay_writes_nothing_with_counting_on(settings: Any) -> None:
    from django.core.management import call_command

    call_command("seed", verbosity=0)
    settings.IDEMPOTENCY = ON
    browser, key = Browser(), str(uuid4())
    assert post(browser, key) == 201
    with CaptureQueriesContext(connection) as captured:
        assert post(browser, key) == 201
    sent = [query["sql"] for query in captured]
    assert sent
    rest = [sql for sql in sent if not sql.startswith("INSERT INTO idempotency_key")]  # which loses, and writes nothing
    assert not {"INSERT", "UPDATE", "DELETE"} & {sql.split()[0].upper() for sql in rest}
    COUNTERS.flush()
    assert {outcome for _, outcome in written()} >= {"reserve.created", "completed", "reserve.replay"}


@pytest.mark.django_db
def test_a_database_that_refuses_loses_nothing_and_breaks_nothing(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.IDEMPOTENCY = {**ON}
    signals.announce(signals.pruned, count=3, using="default")

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if "idempotency_count" in sql:
            raise OSError("planned")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse), caplog.at_level(logging.WARNING):
        COUNTERS.flush()
    assert "the next flush tries again" in caplog.text
    assert written() == {}
    COUNTERS.flush()
    assert written() == {("", "ttl_pruned"): 3}


def test_memory_is_bounded(settings: Any) -> None:
    settings.IDEMPOTENCY = ON
    for number in range(MOST_BUCKETS + 1):
        COUNTERS.add("x", str(number), 1)
    COUNTERS.add("x", "0", 1)
    assert len(COUNTERS._counted) == MOST_BUCKETS
    assert sum(COUNTERS._counted.values()) == MOST_BUCKETS + 1


def test_threads_lose_no_count(settings: Any) -> None:
    settings.IDEMPOTENCY = ON

    def add() -> None:
        for _ in range(1000):
            COUNTERS.add("x", "op", 1)

    at_once([add] * 8)
    assert sum(COUNTERS._counted.values()) == 8000


@pytest.mark.django_db(transaction=True)
def test_writers_at_once_add_up() -> None:
    def write() -> None:
        for _ in range(25):
            counts.accumulate(0, "op", "x", 2, "default")
        connection.close()

    at_once([write] * 4)
    assert written() == {("op", "x"): 200}


@pytest.mark.django_db(transaction=True)
def test_the_thread_writes_by_itself(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.IDEMPOTENCY = ON
    monkeypatch.setattr(outcomes, "FLUSH_SECONDS", 0.01)
    COUNTERS.add("x", "op", 1)
    wait_until(lambda: written() == {("op", "x"): 1})
    wait_until(lambda: COUNTERS._timer is None)
    COUNTERS.add("x", "op", 1)
    wait_until(lambda: written() == {("op", "x"): 2})


# Processes of their own


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database_beside("sqlite:", "counts", tmp_path_factory.mktemp("database")) as url:
        yield url


def environment(database: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "IDEMPOTENCY_COUNT_OUTCOMES": "1",
    }


FORKING = """
import os, django; django.setup()
from django_idempotency.monitoring.outcomes import COUNTERS
COUNTERS.add("parent", "op", 1)
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        COUNTERS.add("child", "op", 1)
        raise SystemExit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
COUNTERS.add("parent", "op", 1)
"""


@pytest.mark.processes
@pytest.mark.django_db
def test_a_forked_process_counts_its_own_and_writes_it_when_it_ends(database: str) -> None:
    subprocess.run(
        [sys.executable, "-c", FORKING], cwd=ROOT, env={**os.environ, **environment(database)}, check=True, timeout=60
    )
    assert dict(query(database, SHARED)) == {"parent": 2, "child": 3}


def counted(database: str) -> Mapping[str, int]:
    return dict(query(database, SHARED))


@pytest.mark.processes
@pytest.mark.django_db
def test_the_workers_of_a_server_add_up(tmp_path: Path, database: str) -> None:
    given = environment(database)
    with running_site(tmp_path, database, workers=2, threads=2, environment=given) as site:
        key = str(uuid4())
        order = {"amount": 100, "currency": "EUR", "customer": "ada"}
        made = [site.alice.post("/payments/", order, key=key).status for _ in range(6)]
        assert made == [201] * 6
        site.service.process.send_signal(signal.SIGTERM)
        site.service.process.wait(60)
    found = counted(database)
    assert (found["reserve.created"], found["completed"], found["reserve.replay"]) == (1, 1, 5)


A_LOST_LEASE = """
import django; django.setup()
from uuid import uuid4
from django_idempotency.core.decisions import Call
from django_idempotency.core.fingerprint import FingerprintRule, RequestParts, seal
from django_idempotency.core.policy import Policy
from django_idempotency.flow.claim import begin
from django_idempotency.models import IdempotencyKey
from django_idempotency.tasks import sweep_zombies
import testproject
parts = RequestParts("POST", "/", "", "application/json", b"{}")
begin(Call("scope", str(uuid4()), seal(parts, FingerprintRule()), Policy(), operation="lost"))
IdempotencyKey.objects.update(locked_until="2000-01-01T00:00Z")
sweep_zombies.delay()
"""


@pytest.mark.soak
@pytest.mark.processes
@pytest.mark.django_db
def test_a_celery_process_writes_its_counts_when_it_ends(tmp_path: Path, database: str) -> None:
    with broker("filesystem", tmp_path) as used:
        given = {**environment(database), **used.environment()}
        subprocess.run([sys.executable, "-c", A_LOST_LEASE], cwd=ROOT, env={**os.environ, **given}, check=True)
        with worker(used, given) as started:
            wait_until(lambda: started.said(r"sweep_zombies\[\S+\] succeeded"))
            started.stop(within=60)
    assert counted(database) == {"reserve.created": 1, "zombie_key": 1, "reconcile.scheduled": 1}
