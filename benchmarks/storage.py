"""What a record costs the disk: python -m benchmarks.storage [--rows 1000000]

Makes a PostgreSQL database of its own beside the one that DATABASE_URL names. It prints the write-ahead log of one new
key above the bare view's, by type of log record where the server has pg_walinspect (PostgreSQL 15), and the bytes of a
stored record in the heap, in TOAST and in each index. The table is filled by the package's own statements, as eight
clients would send them: a record is completed after the next eight are claimed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final, TypeAlias
from uuid import uuid4

import psycopg

from benchmarks.scale import arguments, own_database, progress, server

REQUESTS: Final = 200
CLIENTS: Final = 8
STEP: Final = 10_000
TARGETS: Final = {"leased": 1290, "atomic": 750}  # bytes of log above the bare view's

Log: TypeAlias = dict[tuple[str, str], float]  # bytes of a request's log records by table or index, and type

RECORDS: Final = """
    WITH record AS (
        SELECT xid, resource_manager || ' ' || record_type AS kind, record_length - fpi_length AS size,
            REGEXP_MATCH(block_ref, 'rel \\d+/(\\d+)/(\\d+)') AS place
        FROM pg_get_wal_records_info(%s, LEAST(%s, pg_current_wal_flush_lsn()))
    ), own AS (
        SELECT xid, relname, kind, size
        FROM record JOIN pg_class ON relfilenode = place[2]::oid JOIN pg_database ON pg_database.oid = place[1]::oid
        WHERE datname = CURRENT_DATABASE()
    )
    SELECT relname, kind, SUM(size) FROM own GROUP BY 1, 2
    UNION ALL SELECT '', kind, SUM(size) FROM record WHERE place IS NULL AND xid IN (SELECT xid FROM own) GROUP BY 2
"""
SIZES: Final = """
    SELECT 'heap', pg_relation_size('idempotency_key')
    UNION ALL SELECT 'TOAST', pg_total_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'idempotency_key'
    UNION ALL SELECT relname, pg_relation_size(indexrelid)
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = 'idempotency_key'::regclass
"""


def main() -> int:
    parser = arguments("storage", __doc__, rows=1_000_000)
    rows, url = parser.parse_args().rows, server(parser)
    with own_database(url, keep=False, name="idempotency_storage", settings="testproject.settings") as own:
        prepare()
        with psycopg.connect(own, autocommit=True) as connection:
            report_log(connection)
            report_sizes(connection, rows)
        close()
    return 0


def prepare() -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    User.objects.create_user("alice")


def close() -> None:
    from django.db import connections

    connections.close_all()


def report_log(connection: psycopg.Connection[Any]) -> None:
    from benchmarks import served

    views = {"bare": served.bare, "leased": served.leased, "atomic": served.atomic}
    for view in views.values():  # the first write to a page logs it whole
        for request in requests(REQUESTS):
            view(request)
    measure = log_by_records if has_walinspect(connection) else log_by_position
    spent = {name: measure(connection, view) for name, view in views.items()}
    bare = sum(spent["bare"].values())
    print("\nwrite-ahead log of one new key, in bytes")
    for name, target in TARGETS.items():
        print(
            f"{name}: {sum(spent[name].values()) - bare:.0f} above the bare view's {bare:.0f}, at most {target} wanted"
        )
        for (place, kind), size in sorted(spent[name].items()):
            if size > spent["bare"].get((place, kind), 0):
                print(f"    {place:32}{kind:28}{size:6.0f}")


def requests(number: int) -> Iterator[Any]:
    from django.test import RequestFactory

    for _ in range(number):
        key = {"Idempotency-Key": str(uuid4())}
        yield RequestFactory().post("/x", b'{"amount": 1}', content_type="application/json", headers=key)


def log_by_records(connection: psycopg.Connection[Any], view: Callable[[Any], Any]) -> Log:
    """The log records about this database. What few requests log, such as a page that splits, is left out."""
    found: dict[tuple[str, str], list[float]] = {}
    for request in requests(REQUESTS):
        began = position(connection)
        view(request)
        for place, kind, size in connection.execute(RECORDS, (began, position(connection))):
            found.setdefault((place, kind), []).append(float(size))
    return {name: median(sizes) for name, sizes in found.items() if len(sizes) > REQUESTS / 2}


def log_by_position(connection: psycopg.Connection[Any], view: Callable[[Any], Any]) -> Log:
    """How far the insert position moved. The whole server writes there, so nothing else may run."""
    spent = []
    for request in requests(REQUESTS):
        began = position(connection)
        view(request)
        row = connection.execute("SELECT %s::pg_lsn - %s::pg_lsn", (position(connection), began)).fetchone()
        spent.append(float(row[0]) if row else 0.0)
    return {("", "all"): median(spent)}


def position(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    return str(row[0]) if row else ""


def has_walinspect(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("CREATE EXTENSION pg_walinspect")
    except psycopg.Error:
        return False
    return True


def report_sizes(connection: psycopg.Connection[Any], rows: int) -> None:
    """As the statements leave the table, and as it is when it has just been written anew."""
    found: dict[str, dict[str, float]] = {}
    for mode in TARGETS:
        connection.execute("TRUNCATE idempotency_key CASCADE")
        connection.execute("ALTER TABLE idempotency_key SET (autovacuum_enabled = off)")
        fill(connection, mode, rows)
        found[mode] = sizes(connection, rows)
        connection.execute("VACUUM FULL idempotency_key")
        found[f"{mode}, packed"] = sizes(connection, rows)
    progress("")
    title = f"bytes per stored record, {rows:,} rows"
    print(f"\n{title:38}" + "".join(f"{name:>16}" for name in found))
    for place in (*found["leased"], "all"):
        print(f"{place:38}" + "".join(f"{each.get(place, sum(each.values())):16.1f}" for each in found.values()))


def sizes(connection: psycopg.Connection[Any], rows: int) -> dict[str, float]:
    return {place: size / rows for place, size in connection.execute(SIZES)}


def fill(connection: psycopg.Connection[Any], mode: str, rows: int) -> None:
    """Repeat the package's own statements on the server, without waiting for the disk."""
    connection.execute("SET synchronous_commit = off")
    for first in range(1, rows + 1, STEP):
        last = min(first + STEP - 1, rows)
        connection.execute(repeat(mode, first, last))
        progress(f"{mode}: {last:,} of {rows:,} rows")


def repeat(mode: str, first: int, last: int, **changed: Any) -> str:
    """Write the statements that make these records as a loop. `changed` replaces some of the values."""
    from django_idempotency.store import attempts, claims

    if mode == "atomic":
        steps = [render(claims.INSERT_FINISHED, "n", changed)]
    else:
        steps = [render(claims.CLAIM, "n", changed), render(attempts.COMPLETE, f"n - {CLIENTS}", changed)]
    body = " ".join(f"{step}; COMMIT;" for step in steps)
    return f"DO $fill$ BEGIN FOR n IN {first}..{last} LOOP {body} END LOOP; END $fill$"


def render(statement: Any, number: str, changed: dict[str, Any]) -> str:
    """Write the values of record `number` into a statement. Times are the clock's, as one statement makes all rows."""
    from psycopg.sql import Literal

    expressions = {name: Literal(value).as_string(None) for name, value in (values() | changed).items()}
    for name, kind in {"id": "uuid", "token": "uuid", "key": "uuid::text"}.items():
        expressions[name] = f"md5('{name}' || {number})::{kind}"
    text: str = statement.text("postgresql") % expressions
    return text.replace("STATEMENT_TIMESTAMP()", "CLOCK_TIMESTAMP()")


def values() -> dict[str, Any]:
    """What the statements write for a payment."""
    from django_idempotency import FingerprintRule, Policy, json_reply
    from django_idempotency.core.calls import Call, digest_namespace
    from django_idempotency.core.fingerprint import RequestParts, seal
    from django_idempotency.http.requests import scope_of
    from django_idempotency.store.claims import identity
    from django_idempotency.store.records import reply_values

    principal, operation = "31415", "payments.create"
    parts = RequestParts("POST", "/payments/", "", "application/json", b'{"amount": 1200}')
    call = Call(
        scope=scope_of(principal, operation),
        key="",
        fingerprint=seal(parts, FingerprintRule()),
        policy=Policy(),
        principal=principal,
        operation=operation,
        method="POST",
        path="/payments/",
    )
    reply = json_reply(201, {"id": 2718281, "amount": 1200, "currency": "EUR", "status": "succeeded"})
    written = identity(call, call.id) | reply_values(reply)
    return written | {"namespace": digest_namespace("production"), "success": True, "derived": False, "limit": None}


if __name__ == "__main__":
    sys.exit(main())
