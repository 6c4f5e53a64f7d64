"""No statement of the package is one that Citus refuses. What the suite sends is checked as well: see conftest."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from django_idempotency.models import IdempotencyKey
from tests.kit import citus, sent
from tests.kit.sent import compose, why_refused
from tests.store.test_table import statements

pytestmark = pytest.mark.vendor

CITUS_URL = os.environ.get("CITUS_URL")
# NULL stands for every other parameter: it takes the type that its place wants.
VALUES: dict[str, Any] = defaultdict(lambda: None, scope="a", id=UUID(int=7), ids=[UUID(int=7)], limit="10")
TEXTS = sorted(each.text("postgresql") for each in statements())


@pytest.fixture(autouse=True)
def _on_postgresql(vendor: str, db: None) -> None:
    if vendor != "postgresql":
        pytest.skip("PostgreSQL analyses the statements")


def test_citus_refuses_no_statement_of_the_store() -> None:
    assert len(TEXTS) > 40
    assert why_refused([compose(text, VALUES) for text in TEXTS]) == {}


HERE = "scope = 'a' AND id = '00000000-0000-0000-0000-000000000007'"
PLANTED = [
    (
        citus.ROW_COUNT,
        "INSERT INTO idempotency_count (minute, operation, outcome, count) SELECT NOW(), 'a', 'b', 1 "
        "ON CONFLICT DO NOTHING",
    ),
    (
        citus.COLUMN_IN_STABLE,
        f"UPDATE idempotency_key SET expires_at = NOW() + retention_seconds * INTERVAL '1 s' WHERE {HERE}",
    ),
    (
        citus.CLOCK_IN_CASE,
        f"UPDATE idempotency_key SET expires_at = CASE WHEN steps_done > 0 THEN NULL ELSE NOW() END WHERE {HERE}",
    ),
    (citus.LOCK, "SELECT id FROM idempotency_key WHERE id = '00000000-0000-0000-0000-000000000007' FOR UPDATE"),
    (
        citus.CORRELATED,
        "SELECT id FROM idempotency_event AS event WHERE NOT EXISTS "
        "(SELECT 1 FROM idempotency_key WHERE idempotency_key.id = event.record_id)",
    ),
    (citus.MANY_ROWS, "UPDATE idempotency_key SET locked_until = NULL WHERE status = 'pending'"),
    (citus.INSERT_PARTS, "INSERT INTO idempotency_event (record_id, at, kind, transition, actor, reason) "
     "VALUES ((SELECT id FROM idempotency_key LIMIT 1), NOW(), 'a', 'b', 'c', 'd')"),
    (citus.VOLATILE, f"UPDATE idempotency_key SET locked_until = CLOCK_TIMESTAMP() WHERE {HERE}"),
    (citus.COLUMN_IN_STABLE, f"DELETE FROM idempotency_key WHERE {HERE} AND created_at::text = '2026'"),
    (citus.MUTABLE_RETURNING, f"DELETE FROM idempotency_key WHERE {HERE} RETURNING NOW()"),
    (
        citus.MUTABLE_CONFLICT,
        "INSERT INTO idempotency_count (minute, operation, outcome, count) VALUES (NOW(), 'a', 'b', 1) "
        "ON CONFLICT (minute, operation, outcome) DO UPDATE SET minute = NOW() + INTERVAL '1 s'",
    ),
    (citus.SUBQUERY, "DELETE FROM idempotency_key WHERE id IN (SELECT record_id FROM idempotency_event)"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "statement"), PLANTED)
def test_a_statement_that_citus_refuses_is_found(reason: str, statement: str) -> None:
    assert why_refused([statement]) == {statement: {reason}}


# What is close to a planted statement, and what Citus takes
ACCEPTED = [
    "INSERT INTO idempotency_count (minute, operation, outcome, count) SELECT NOW(), 'a', 'b', 1 RETURNING id",
    f"UPDATE idempotency_key SET expires_at = NOW() + INTERVAL '1 s' WHERE {HERE} AND locked_until <= NOW()",
    f"SELECT id FROM idempotency_key WHERE {HERE} FOR UPDATE",
    "SELECT id FROM idempotency_key WHERE id IN (SELECT record_id FROM idempotency_event)",
    "SELECT CASE WHEN expires_at <= NOW() THEN NOW() + lease_seconds * INTERVAL '1 s' END FROM idempotency_key",
    "DELETE FROM idempotency_key WHERE id = '00000000-0000-0000-0000-000000000007'",
    "UPDATE idempotency_maintenance_run SET finished_at = NOW() + LENGTH(job) * INTERVAL '1 s'",
]


@pytest.mark.parametrize("statement", ACCEPTED)
def test_a_statement_that_citus_takes_is_not_found(statement: str) -> None:
    assert why_refused([statement]) == {}


def lock_by_id(sender: str) -> None:
    """Lock a record as a module with this name would."""
    code = "list(rows.select_for_update().filter(operation=sender))"
    exec(code, {"__name__": sender, "sender": sender, "rows": IdempotencyKey.objects})  # noqa: S102


def test_what_the_package_sends_is_checked_and_what_tests_send_is_not() -> None:
    sent.take_refused()
    lock_by_id("tests.planted")
    assert not sent.has_fresh()
    lock_by_id("django_idempotency.planted")
    assert list(sent.take_refused().values()) == [{citus.LOCK}]


def test_times_are_the_same_to_the_microsecond() -> None:
    """`{now + seconds}` reckons in epoch seconds. Interval arithmetic gives the same, until after the year 2037."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT COUNT(*), COUNT(*) FILTER (
                WHERE TO_TIMESTAMP(DATE_PART('epoch', at) + seconds) <> at + seconds * INTERVAL '1 s')
            FROM GENERATE_SERIES(1, 1000) AS step,
                 LATERAL (SELECT TIMESTAMPTZ '2026-01-01' + step * INTERVAL '79 hours 11 s 1237 us') AS clock (at),
                 UNNEST(ARRAY[0, 1, 59, 600, 86400, 7776000, -3600]) AS seconds
            """
        )
        assert cursor.fetchone() == (7000, 0)


@pytest.mark.skipif(CITUS_URL is None, reason="CITUS_URL names no database in which the tables are distributed")
def test_citus_plans_every_statement_of_the_store() -> None:
    import psycopg

    with psycopg.connect(CITUS_URL or "") as server:
        for text in TEXTS:
            server.execute("EXPLAIN " + compose(text, VALUES))
            server.rollback()
