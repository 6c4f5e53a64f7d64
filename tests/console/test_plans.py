"""Each view of the list goes along its index, also where a plan is made without looking at the values."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_idempotency import Status
from django_idempotency.console import keyset
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.gauges import read_gauges
from tests.kit.console import LIST, many

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

ROWS = 20_000
INDEXES = {
    "": "idempotency_key_created",
    "status=completed": "idempotency_key_created",
    "operation=rides.create": "idempotency_key_created",
    "created=day": "idempotency_key_created",
    "created_from=2026-01-01T00:00&created_to=2126-01-01T00:00": "idempotency_key_created",
    "status=failure": "idempotency_key_created",
    "error=timeout": "idempotency_key_created",
    "status=unknown&error=timeout": "idempotency_key_due",
    "http=5xx": "idempotency_key_created",
    "status=in_progress": "idempotency_key_overdue",
    "needs=sweeper": "idempotency_key_overdue",
    "status=unknown": "idempotency_key_due",
    "needs=reconciler": "idempotency_key_due",
    "needs=unattended": "idempotency_key_due",
    "expires=past": "idempotency_key_expired",
    "q=completed-7": "idempotency_key_scope_key",
    "q=user:7": "idempotency_key_created",
    "needs=person": "idempotency_key_pkey",
}


@pytest.fixture
def crowd(vendor: str) -> None:
    """Thousands that ended, a few of everything else."""
    if vendor != "postgresql":
        pytest.skip("the plans are PostgreSQL's")
    now = timezone.now()
    seed = many(1, Status.COMPLETED)[0]
    others = [
        each.attname for each in IdempotencyKey._meta.concrete_fields if each.attname not in ("id", "key", "created_at")
    ]
    columns = ", ".join(f'"{name}"' for name in others)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO idempotency_key (id, key, created_at, {columns}) "
            f"SELECT gen_random_uuid(), 'completed-' || n, created_at - n * interval '1 second', {columns} "
            "FROM idempotency_key, generate_series(1, %s) AS n WHERE id = %s",
            [ROWS, seed],
        )
    for status in (Status.IN_PROGRESS, Status.UNKNOWN, Status.DEAD_LETTER):
        many(100, status)
    many(100, Status.FAILED, expires_at=now - timedelta(hours=1))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE idempotency_key")
        cursor.execute("ANALYZE idempotency_event")


@pytest.mark.usefixtures("crowd")
def test_no_view_of_the_list_reads_the_table(viewer: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(keyset.fetch_page, "__defaults__", (500,))  # a part of this table, as 20,000 are of a large one
    for query, index in INDEXES.items():
        with CaptureQueriesContext(connection) as captured:
            assert viewer.get(f"{LIST}?{query}").status_code == 200
        plans = [plan(each["sql"]) for each in captured if '"idempotency_key"' in each["sql"]]
        assert plans, query
        assert not [text for text in plans if "Seq Scan on idempotency_key" in text], query
        assert any(index in text for text in plans), (query, plans)


@pytest.mark.usefixtures("crowd")
def test_the_next_page_needs_no_values_for_its_plan(viewer: Client) -> None:
    """As a server-side prepared statement would be planned."""
    further = str(viewer.get(LIST).context["cl"].further_link)
    with CaptureQueriesContext(connection) as captured:
        viewer.get(LIST + further)
    (page,) = [each["sql"] for each in captured if "ORDER BY" in each["sql"] and '"idempotency_key"' in each["sql"]]
    assert "idempotency_key_created" in generic(page)


@pytest.mark.usefixtures("crowd")
def test_the_gauges_read_small_indexes() -> None:
    with CaptureQueriesContext(connection) as captured:
        read_gauges(600, "default")
    (asked,) = [each["sql"] for each in captured]
    assert "Seq Scan on idempotency_key" not in plan(asked)


def plan(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(line for (line,) in cursor.fetchall())


def generic(sql: str) -> str:
    values: list[Any] = re.findall(r"'[^']*'::timestamptz", sql)
    text = sql
    for number, value in enumerate(dict.fromkeys(values), start=1):
        text = text.replace(value, f"${number}")
    assert values
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE asked AS {text}")
        cursor.execute(f"EXPLAIN EXECUTE asked ({', '.join(dict.fromkeys(values))})")
        found = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("DEALLOCATE asked")
    return found
