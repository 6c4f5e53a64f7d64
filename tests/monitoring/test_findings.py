"""What is wrong is decided once; the health view, the doctor and the dashboard say the same."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from django_idempotency import Status, maintenance, monitoring
from django_idempotency.console.dashboard.numbers import clear_cache
from django_idempotency.maintenance import health
from django_idempotency.models import IdempotencyEvent, IdempotencyKey, MaintenanceRun
from django_idempotency.monitoring.durations import OperationStats
from django_idempotency.monitoring.findings import (
    RUNBOOKS,
    SENTENCES,
    URGENT,
    Code,
    Finding,
    describe,
    describe_plainly,
)
from django_idempotency.monitoring.health import examine
from django_idempotency.monitoring.jobs import SCHEDULED
from django_idempotency.monitoring.rules import UNKNOWN_MANY, JobRun, Snapshot, find_problems
from django_idempotency.store import attempts
from django_idempotency.store.operations import StoredOperation
from django_idempotency.store.server import Server, name_look_alike
from tests.kit.console import many
from tests.kit.records import change, claimed, doubtful

pytestmark = pytest.mark.vendor

ON_TIME: Final = {job.name: JobRun(job.name, 1.0, {}, "") for job in SCHEDULED}
WELL: Final = Snapshot(
    oldest_overdue=None,
    oldest_waiting=None,
    unknown=0,
    oldest_unknown=None,
    dead_letters=0,
    oldest_dead_letter=None,
    runs=ON_TIME,
    clocks_apart=0.0,
)
SLOW: Final = OperationStats(lease=10, retention=86_400, seconds=[4.0] * 100)
FORGETFUL: Final = OperationStats(lease=10, retention=86_399)


def ran(name: str, **values: Any) -> dict[str, JobRun]:
    return {**ON_TIME, name: replace(ON_TIME[name], **values)}


def test_nothing_is_wrong() -> None:
    quick = OperationStats(lease=10, retention=None, seconds=[1.0] * 100)
    assert find_problems(replace(WELL, oldest_overdue=600.0, oldest_waiting=600.0, operations={"pay": quick})) == []
    assert find_problems(replace(WELL, unknown=50, oldest_unknown=3600.0)) == []


def asked(**settings: str) -> dict[str, Server]:
    return {"server": Server(settings=settings)}


@pytest.mark.parametrize(
    ("wrong", "code", "values"),
    [
        ({"oldest_overdue": 601.0}, Code.LEASE_OVERDUE, {"age": 601.0}),
        ({"oldest_waiting": 601.0}, Code.WORK_WAITING, {"age": 601.0}),
        ({"dead_letters": 2, "oldest_dead_letter": 5.0}, Code.DEAD_LETTERS, {"count": 2, "age": 5.0}),
        ({"unattended": 2, "oldest_unattended": 5.0}, Code.UNATTENDED, {"count": 2, "age": 5.0}),
        ({"unknown": 3, "oldest_unknown": 3601.0}, Code.UNKNOWN_OLD, {"count": 3, "age": 3601.0}),
        ({"unknown": 51, "oldest_unknown": 1.0}, Code.UNKNOWN_MANY, {"count": 51}),
        ({"missing_secrets": ["old"]}, Code.FINGERPRINT_UNREADABLE, {"secret": "old"}),
        ({"runs": ran("reap", error="gone")}, Code.JOB_FAILED, {"job": "reap", "error": "gone"}),
        ({"runs": ran("reap", finished_ago=None)}, Code.JOB_NEVER_RAN, {"job": "reap"}),
        ({"runs": ran("sweep", finished_ago=601.0)}, Code.JOB_LATE, {"job": "sweep", "age": 601.0}),
        ({"operations": {"pay": FORGETFUL}}, Code.OPERATION_RETENTION_SHORT, {"operation": "pay", "retention": 86_399}),
        (
            {"operations": {"pay": SLOW}},
            Code.LEASE_SHORT,
            {"operation": "pay", "lease": 10, "p99": 4.0, "needed": 12},
        ),
        ({"heartbeats": 2}, Code.HEARTBEAT_FAILED, {"count": 2}),
        ({"pooled": ("cursors",)}, Code.POOLER, {"options": "cursors"}),
        ({"clocks_apart": 2.1}, Code.CLOCKS_APART, {"difference": 2.1}),
        (asked(in_hot_standby="on", transaction_read_only="on"), Code.READ_ONLY, {"setting": "in_hot_standby"}),
        (asked(read_only="on"), Code.READ_ONLY, {"setting": "read_only"}),
        (asked(synchronous_commit="off"), Code.COMMITS_LOST, {"setting": "synchronous_commit", "value": "off"}),
        (
            asked(innodb_flush_log_at_trx_commit="2"),
            Code.COMMITS_LOST,
            {"setting": "innodb_flush_log_at_trx_commit", "value": "2"},
        ),
        ({"server": Server(keeps_unique=False)}, Code.UNIQUE_MISSING, {}),
        ({"server": Server(standbys=2)}, Code.STANDBYS_LATE, {"count": 2}),
        (
            {"server": Server(settings={"synchronous_standby_names": "b", "synchronous_commit": "local"}, standbys=1)},
            Code.STANDBYS_LATE,
            {"count": 1},
        ),
        (
            asked(wsrep_on="on", wsrep_sync_wait="6", wsrep_local_state_comment="synced"),
            Code.READS_STALE,
            {"value": "6"},
        ),
        (
            asked(wsrep_on="on", wsrep_sync_wait="7", wsrep_local_state_comment="joining"),
            Code.NODE_NOT_SYNCED,
            {"state": "joining"},
        ),
        (
            asked(max_allowed_packet="1048576"),
            Code.PACKET_SMALL,
            {"value": 1_048_576, "body": 1_048_576, "least": 2_162_688},
        ),
        (asked(client_connection_check_interval="0"), Code.CLIENTS_UNNOTICED, {}),
        ({"server": Server("Citus")}, Code.LOOK_ALIKE, {"engine": "Citus"}),
    ],
    ids=lambda value: value.value if isinstance(value, Code) else "",
)
def test_each_finding(wrong: dict[str, Any], code: Code, values: dict[str, Any]) -> None:
    (found,) = find_problems(replace(WELL, **wrong))
    assert (found.code, found.values, found.is_urgent) == (code, values, code in URGENT)
    assert len(describe(found)) > 20
    assert "%(" not in describe(found)


def test_a_server_that_is_well() -> None:
    settings = {
        "transaction_read_only": "off",
        "in_hot_standby": "off",
        "synchronous_commit": "on",
        "synchronous_standby_names": "b",
        "client_connection_check_interval": "5000",
        "innodb_flush_log_at_trx_commit": "1",
        "wsrep_on": "off",
        "wsrep_sync_wait": "0",
        "max_allowed_packet": "16777216",
    }
    assert find_problems(replace(WELL, server=Server(settings=settings, standbys=1))) == []


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("PostgreSQL 15.20 (Debian 15.20-0+deb12u1) on x86_64-pc-linux-gnu", ""),
        ("10.11.19-MariaDB-0+deb12u1", ""),
        ("8.4.3", ""),
        ("PostgreSQL 11.2-YB-2.20.1.3-b0 on x86_64-pc-linux-gnu", "YugabyteDB"),
        ("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)", "CockroachDB"),
        ("8.0.11-TiDB-v7.5.1", "TiDB"),
    ],
)
def test_a_server_names_itself_in_its_version(version: str, name: str) -> None:
    assert name_look_alike(version) == name


def test_a_short_retention_is_found(settings: Any) -> None:
    settings.IDEMPOTENCY = {"RETENTION": 3600}
    (found,) = find_problems(WELL)
    assert (found.code, found.values) == (Code.RETENTION_SHORT, {"retention": 3600.0})
    assert "is 1 h:" in describe(found)


def test_a_job_that_failed_and_is_late_is_found_twice() -> None:
    found = find_problems(replace(WELL, runs=ran("sweep", finished_ago=700.0, error="gone")))
    assert [each.code for each in found] == [Code.JOB_FAILED, Code.JOB_LATE]


def test_a_job_without_a_schedule_is_never_late_but_may_fail() -> None:
    runs = {**ON_TIME, "work": JobRun("work", 1e9, {}, "gone")}
    assert [each.code for each in find_problems(replace(WELL, runs=runs))] == [Code.JOB_FAILED]


def test_every_code_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Code)


@pytest.fixture
def trouble(settings: Any) -> None:
    """One problem of each urgent kind, and some that are not urgent."""
    settings.IDEMPOTENCY = {"RETENTION": 3600}
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.health", "{}", "{}", 0), 60)
    change(attempt, last_run_at=F("created_at") - timedelta(hours=1))
    change(claimed(), locked_until=F("created_at") - timedelta(hours=1))
    dead = doubtful()
    change(dead, status="dead_letter", reconcile_after=None)
    IdempotencyEvent.objects.create(record_id=dead.call.id, kind="dead letter", transition="T12")
    change(doubtful(), created_at=F("created_at") - timedelta(hours=2))
    maintenance.reap()
    MaintenanceRun.objects.filter(job="reap").update(error="OperationalError: disk full")
    assert IdempotencyKey.objects.count() == 4


EXPECTED: Final = {*URGENT, Code.JOB_NEVER_RAN, Code.UNKNOWN_OLD, Code.RETENTION_SHORT}


@pytest.mark.django_db
@pytest.mark.usefixtures("trouble")
def test_all_three_report_the_same(client: Client) -> None:
    found = [each for each in examine("default") if not each.is_advice]
    assert {each.code for each in found} == EXPECTED

    output = StringIO()
    with pytest.raises(CommandError, match=f"Problems found: {len(found)}"):
        call_command("idempotency_doctor", "--json", stdout=output)
    said = json.loads(output.getvalue())["findings"]
    assert [each["code"] for each in said] == [each.code for each in found]

    client.force_login(User.objects.create_superuser("root"))
    clear_cache()
    shown = [
        str(each) for each, _guide in client.get(reverse("admin:django_idempotency_dashboard")).context["problems"]
    ]
    clear_cache()
    assert len(shown) == len(found)
    for part in (
        "no worker has begun it",
        "was not handled",
        "needs a person",
        "has no reconciler",
        "disk full",
        "1 outcome is unknown",
    ):
        assert [text for text in shown if part in text], part
        assert [each for each in said if part in each["text"]], part

    urgent = health()
    assert {each.code for each in urgent.findings} == URGENT
    assert set(urgent.as_json()["codes"]) == set(URGENT)


def test_monitors_read_english_in_every_language() -> None:
    (found,) = find_problems(replace(WELL, clocks_apart=2.5))
    with override("de"):
        assert "um 2,5 s voneinander ab" in describe(found)
        assert "differ by 2.5 s" in describe_plainly(found)


@pytest.mark.django_db
@pytest.mark.parametrize(("hours", "code", "wrong"), [(1, "", True), (1, "NotExecuted", False), (30, "Not", True)])
def test_the_dashboard_sees_work_that_no_worker_begins(client: Client, hours: int, code: str, wrong: bool) -> None:
    """Work that was put back has its turn later."""
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.health", "{}", "{}", 0), 60)
    change(attempt, last_run_at=F("created_at") - timedelta(hours=hours), last_error_code=code)
    client.force_login(User.objects.create_superuser("root"))
    clear_cache()
    page = client.get(reverse("admin:django_idempotency_dashboard")).content.decode()
    clear_cache()
    assert ("no worker has begun it" in page) is wrong


def read_alerts() -> dict[str, tuple[str, str]]:
    """Expression and runbook of each alert."""
    text = (Path(monitoring.__file__).parent / "alerts.yaml").read_text()
    found = re.findall(r"- alert: (\w+)\n +expr: (.*)\n(?:.*\n)*? +runbook_url: (\S+)", text)
    return {name: (expression, url) for name, expression, url in found}


@pytest.mark.django_db
def test_many_unknown_outcomes_are_a_finding_as_they_are_an_alert(client: Client) -> None:
    expression, runbook = read_alerts()["IdempotencyUnknownMany"]
    assert expression == f'max by (job) (api_idempotency_open{{state="unknown"}}) > {UNKNOWN_MANY}'
    many(UNKNOWN_MANY, Status.UNKNOWN)
    client.force_login(User.objects.create_superuser("root"))
    for number, found in ((UNKNOWN_MANY, False), (UNKNOWN_MANY + 1, True)):
        reported = [each for each in examine("default") if each.code == "unknown-many"]
        assert [each.values for each in reported] == [{"count": number}] * found
        assert [each.runbook for each in reported] == [runbook] * found
        clear_cache()
        page = client.get(reverse("admin:django_idempotency_dashboard")).content.decode()
        assert (f"{number} outcomes are unknown at the same time" in page) is found
        assert (runbook in page) is found
        doubtful()
    clear_cache()


def test_a_finding_that_is_an_alert_leads_to_its_runbook() -> None:
    known = {url for _expression, url in read_alerts().values()}
    assert {Finding(code).runbook for code in RUNBOOKS} <= known
    assert Finding(Code.LEASE_SHORT).runbook == ""
