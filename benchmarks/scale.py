"""The jobs on a large table: python -m benchmarks.scale [--rows 10000000]

Makes a PostgreSQL database of its own beside the one that DATABASE_URL names, fills it, and prints the time that
EXPLAIN ANALYZE itself reports for each page a job reads, and how a reaper and new keys get along.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg

NAME: Final = "idempotency_scale"
SECONDS: Final = 5.0
ROUNDS: Final = 8
OVERDUE: Final = 500
DUE: Final = 500
SHARE: Final = 0.0625

BARE: Final = """
    ALTER TABLE idempotency_key DROP CONSTRAINT idempotency_key_pkey;
    ALTER TABLE idempotency_key DROP CONSTRAINT idempotency_key_scope_key;
    DROP INDEX idempotency_key_overdue, idempotency_key_due, idempotency_key_expired, idempotency_key_created;
"""
DRESSED: Final = (
    "ALTER TABLE idempotency_key ADD PRIMARY KEY (id)",
    "ALTER TABLE idempotency_key ADD CONSTRAINT idempotency_key_scope_key UNIQUE (key, scope)",
    "CREATE INDEX idempotency_key_overdue ON idempotency_key (locked_until) WHERE locked_until IS NOT NULL",
    "CREATE INDEX idempotency_key_due ON idempotency_key (reconcile_after) WHERE reconcile_after IS NOT NULL",
    "CREATE INDEX idempotency_key_expired ON idempotency_key (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX idempotency_key_created ON idempotency_key (created_at)",
    "VACUUM ANALYZE idempotency_key",
    "CHECKPOINT",
)
FILL: Final = """
    INSERT INTO idempotency_key
        (id, scope, key, status, fingerprint, principal, operation, request_method, request_path, attempt_token,
         lease_seconds, grace_seconds, retention_seconds, created_at, last_run_at, grace_until,
         locked_until, reconcile_after, response_status, response_headers, response_body, completed_at, expires_at)
    SELECT gen_random_uuid(), '6:user:' || n %% 50000, 'key-' || n, kind,
        'v2::' || left(md5(n::text), 22) || ':' || right(md5(n::text), 22),
        'user:' || n %% 50000, 'payments.create', 'POST', '/payments/', gen_random_uuid(),
        300, 300, 86400, made, made, made,
        CASE WHEN kind = 'in_progress' THEN made + interval '5 min' END,
        CASE WHEN kind = 'unknown' THEN made END,
        CASE WHEN kind = 'completed' THEN 201 END, '[]',
        CASE WHEN kind = 'completed' THEN '{"id": 1, "amount": 1200}'::bytea END,
        CASE WHEN kind = 'completed' THEN made END,
        CASE WHEN kind = 'completed' THEN made + interval '24 h' END
    FROM (
        SELECT n, now() - (n::float8 / %(rows)s) * interval '48 h' AS made,
            CASE WHEN n > %(rows)s - %(overdue)s THEN 'in_progress'
                 WHEN n > %(rows)s - %(overdue)s - %(due)s THEN 'unknown' ELSE 'completed' END AS kind
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    ) AS rows
"""
STEP: Final = 500_000


def main() -> int:
    parser = arguments("scale", __doc__, rows=10_000_000)
    parser.add_argument("--keep", action="store_true", help="keep the database for another look")
    parser.add_argument("--share", type=float, default=SHARE, help="the share of its time that the reaper works")
    options = parser.parse_args()
    with own_database(server(parser), keep=options.keep) as own:
        fill(own, options.rows)
        scans(own)
        together(options.share)
    return 0


def arguments(name: str, description: str | None, *, rows: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--rows", type=int, default=rows)
    return parser


def server(parser: argparse.ArgumentParser) -> str:
    """The PostgreSQL server beside whose database another one is made."""
    url = os.environ.get("DATABASE_URL", "")
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        parser.error("this needs a PostgreSQL server: set DATABASE_URL=postgresql://user@host:5432/name")
    return url


@contextmanager
def own_database(
    url: str, *, keep: bool, name: str = NAME, settings: str = "benchmarks.records_alone"
) -> Iterator[str]:
    own = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    with psycopg.connect(url.rpartition("/")[0] + "/postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
        os.environ["DATABASE_URL"] = own
        os.environ["DJANGO_SETTINGS_MODULE"] = settings
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", "django_idempotency", verbosity=0)
        try:
            yield own
        finally:
            if not keep:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def fill(url: str, rows: int) -> None:
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(BARE)
        for first in range(1, rows + 1, STEP):
            last = min(first + STEP - 1, rows)
            connection.execute(FILL, {"rows": rows, "first": first, "last": last, "overdue": OVERDUE, "due": DUE})
            progress(f"filled {last:,} of {rows:,} rows")
        for statement in DRESSED:
            progress(statement[:100])
            connection.execute(statement)
        size = connection.execute("SELECT pg_size_pretty(pg_total_relation_size('idempotency_key'))").fetchone()
    progress("")
    print(f"{rows:,} rows, {size[0] if size else '?'} with indexes, made in {time.monotonic() - began:.0f} s")


def scans(url: str) -> None:
    from django_idempotency.store import jobs

    page = {"limit": 1000, "began": 0}
    print(f"\n{'page':34}{'EXPLAIN ANALYZE':>18}   plan")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for title, statement in (
            ("sweep, 1,000 overdue leases", jobs.LOST),
            ("reconcile, 1,000 due", jobs.UNKNOWN_DUE),
            ("resume, 1,000 due", jobs.RESUMABLE),
        ):
            explain(connection, title, statement.text("postgresql"), page)
        past = connection.execute(jobs.PAST.text("postgresql"), page).fetchall()
        explain(connection, "reap, read a batch of 1,000", jobs.PAST.text("postgresql"), page)
        ids = {"ids": sorted(row[1] for row in past)}
        explain(connection, "reap, delete a batch of 1,000", jobs.DELETE.text("postgresql"), ids)


def explain(connection: psycopg.Connection[Any], title: str, text: str, values: dict[str, Any]) -> None:
    best, plan = float("inf"), ""
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values).fetchone()
        found = row[0][0] if row else {}
        best, plan = min(best, found["Execution Time"]), " > ".join(nodes(found["Plan"]))
    print(f"{title:34}{best:15.2f} ms   {plan}")


def nodes(plan: dict[str, Any]) -> Iterator[str]:
    place = plan.get("Index Name", plan.get("Relation Name"))
    yield plan["Node Type"] + (f" on {place}" if place else "")
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def together(share: float) -> None:
    """New keys alone and beside the reaper, in turn; then the reaper alone."""
    alone, beside, reaped = [], [], []
    for _ in range(ROUNDS):
        alone.append(inserts(SECONDS))
        with reaping(share) as rates:
            beside.append(inserts(SECONDS))
        reaped += rates
    with reaping(1.0) as rates:
        time.sleep(SECONDS)
    kept = median(after / before for before, after in zip(alone, beside, strict=True))
    deleted = median(rows / keys for rows, keys in zip(reaped, beside, strict=True))
    print(f"\nnew keys alone             {median(alone):10,.0f} /s")
    print(f"new keys beside the reaper {median(beside):10,.0f} /s   ratio {kept:.2f} (aim: at least 0.95)")
    print(f"reaper, a share of {share:<7}{median(reaped):10,.0f} /s   rows a new key {deleted:.1f} (aim: at least 4)")
    print(f"reaper, alone              {rates[0]:10,.0f} /s")


@contextmanager
def reaping(share: float) -> Iterator[list[float]]:
    """Reap in a thread for as long as the block runs, and put the rate into the list."""
    rates: list[float] = []
    stop = threading.Event()
    reaper = threading.Thread(target=reap, args=(stop, share, rates))
    reaper.start()
    try:
        yield rates
    finally:
        stop.set()
        reaper.join()


def inserts(seconds: float, threads: int = 2) -> float:
    from uuid import uuid4

    from django.db import connections

    from django_idempotency import FingerprintRule, Policy, json_reply
    from django_idempotency.core.calls import Call
    from django_idempotency.core.fingerprint import RequestParts, seal
    from django_idempotency.flow import run

    fingerprint = seal(RequestParts("POST", "/", "", "application/json", b"{}"), FingerprintRule())
    policy, reply = Policy(), json_reply(201, {"id": 1})
    done = [0] * threads
    deadline = time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < deadline:
            run.run_call(Call("scale", str(uuid4()), fingerprint, policy), lambda attempt: (None, reply))
            done[number] += 1
        connections.close_all()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    progress("")
    return sum(done) / seconds


def reap(stop: threading.Event, share: float, rates: list[float]) -> None:
    from django.db import connections

    from django_idempotency.maintenance import Bounds
    from django_idempotency.maintenance import reap as job

    began = time.monotonic()
    counts = job(Bounds(stopped=stop.is_set, share=share))
    if not stop.is_set():
        print("The reaper had nothing left to delete: its rate is too low. Use more rows.")
    rates.append(counts["deleted"] / (time.monotonic() - began))
    connections.close_all()


def progress(text: str) -> None:
    if sys.stderr.isatty() or os.environ.get("PROGRESS"):
        print(f"\r\033[K{text}", end="\n" if not sys.stderr.isatty() and text else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
