"""The dashboard on a large table: python -m benchmarks.dashboard [--rows 1000000]

Makes a PostgreSQL database of its own beside the one that DATABASE_URL names, fills it, and prints for each query of
the dashboard the time and the plan that EXPLAIN ANALYZE reports, and how long all the figures take.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import psycopg

from benchmarks.scale import arguments, fill, nodes, own_database, server

# A week in which ten operations had five outcomes in every minute.
COUNTS: Final = """
    INSERT INTO idempotency_count (minute, operation, outcome, count)
    SELECT date_trunc('minute', now()) - n * interval '1 minute', 'operation-' || o, 'outcome-' || k, 7
    FROM generate_series(0, 10079) AS n, generate_series(1, 10) AS o, generate_series(1, 5) AS k
"""
DEAD_LETTERS: Final = (
    """
    UPDATE idempotency_key SET status = 'dead_letter', reconcile_after = NULL
    WHERE id IN (SELECT id FROM idempotency_key WHERE reconcile_after IS NOT NULL LIMIT 20)
    """,
    """
    INSERT INTO idempotency_event (record_id, kind)
    SELECT id, 'dead letter' FROM idempotency_key WHERE status = 'dead_letter'
    """,
    "VACUUM ANALYZE idempotency_count",
    "VACUUM ANALYZE idempotency_event",
)


def main() -> int:
    parser = arguments("dashboard", __doc__, rows=1_000_000)
    rows, url = parser.parse_args().rows, server(parser)
    with own_database(url, keep=False, name="idempotency_dashboard") as own:
        fill(own, rows)
        with psycopg.connect(own, autocommit=True) as connection:
            for statement in (COUNTS, *DEAD_LETTERS):
                connection.execute(statement)
        return report()


def report() -> int:
    """1 where a plan reads the whole table."""
    from django.conf import settings
    from django.db import connection

    from django_idempotency.store.counts import merge_oldest_hour

    settings.IDEMPOTENCY = {"COUNT_OUTCOMES": True}
    while merge_oldest_hour("default"):  # as the reaper does
        pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE idempotency_count")
    found = [each for period in ("hour", "day", "week", "month") for each in measured(period)]
    connection.close()
    return int(any("Seq Scan on idempotency_key" in plan for plan in found))


def measured(period: str) -> Iterator[str]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from django_idempotency.console.dashboard.numbers import PERIODS, read_figures

    seconds = []
    for _ in range(5):
        began = time.monotonic()
        with CaptureQueriesContext(connection) as captured:
            read_figures(PERIODS[period], "default")
        seconds.append(time.monotonic() - began)
    print(f"\nfigures of a {period}: {len(captured)} queries, {min(seconds) * 1000:.0f} ms, the first time "
          f"{seconds[0] * 1000:.0f} ms")  # fmt: skip
    for query in captured:
        best: list[dict[str, Any]] = []
        with connection.cursor() as cursor:
            for _ in range(3):  # the machine may do something else
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query['sql']}")
                best.append(cursor.fetchone()[0][0])
        explained = min(best, key=lambda each: each["Execution Time"])
        steps = [step for step in nodes(explained["Plan"]) if "Scan" in step and "Subquery" not in step]
        print(f"{explained['Execution Time']:10.1f} ms   {', '.join(steps)}")
        yield ", ".join(steps)


if __name__ == "__main__":
    sys.exit(main())
