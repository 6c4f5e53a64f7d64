"""How PostgreSQL has laid out the table of the records, and how a change of the layout waits for locks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import sleep
from typing import Any, Final, Protocol, TypeVar

from django.db import OperationalError, connections, transaction

from django_idempotency.models import IdempotencyKey
from django_idempotency.store.limits import may_repeat

T = TypeVar("T")

TABLE: Final = IdempotencyKey._meta.db_table
NEW: Final = f"{TABLE}_new"  # the copy, until it has taken the table's place
MIRROR: Final = f"{TABLE}_mirror"  # the trigger, and its function

# Requests queue behind a lock that is waited for, so the wait is shorter than CLAIM_LIMIT. It is longer than
# deadlock_timeout, after which autovacuum gives way.
TABLE_WAIT: Final = 1.5
# Shorter than deadlock_timeout: where a request and the copy wait for each other, the copy begins again.
ROW_WAIT: Final = 0.5
LOCK_TRIES: Final = 60
PAUSE: Final = 1.0  # seconds between two tries, in which requests have their turn

_LAYOUT: Final = f"""
    SELECT t.oid, QUOTE_IDENT(s.nspname), QUOTE_IDENT(PG_GET_USERBYID(t.relowner)),
        (SELECT PG_GET_CONSTRAINTDEF(oid) FROM pg_constraint WHERE conrelid = t.oid AND contype = 'p'),
        (SELECT COUNT(*) FROM pg_inherits WHERE inhparent = t.oid),
        n.oid, (SELECT COUNT(*) FROM pg_inherits WHERE inhparent = n.oid)
    FROM pg_class t
    JOIN pg_namespace s ON s.oid = t.relnamespace
    LEFT JOIN pg_class n ON n.relnamespace = t.relnamespace AND n.relname = '{NEW}'
    WHERE t.oid = '{TABLE}'::regclass
"""
# What would be lost with the table, or would forbid to drop it. Its own constraints depend on its columns.
_DEPENDENTS: Final = f"""
    SELECT DISTINCT COALESCE(c.conrelid::regclass::text, ''), PG_DESCRIBE_OBJECT(d.classid, d.objid, 0)
    FROM pg_depend d
    LEFT JOIN pg_constraint c ON d.classid = 'pg_constraint'::regclass AND c.oid = d.objid
    LEFT JOIN pg_trigger g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = '{TABLE}'::regclass
        AND (d.deptype = 'n' OR d.classid IN ('pg_policy'::regclass, 'pg_publication_rel'::regclass)
            OR (g.tgname <> '{MIRROR}' AND NOT g.tgisinternal))
        AND c.conrelid IS DISTINCT FROM d.refobjid
    ORDER BY 1, 2
"""


class Refused(Exception):
    """The layout was not changed, or not to the end. The text says why, and what to do."""


class Change(Protocol):
    """A change of the layout, before it is made."""

    def list_statements(self) -> list[str]:
        """Return what `run` executes."""

    def run(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """Make the change, and return the figures that a report shows."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The table as it is, and the copy that an unfinished run left."""

    table: int
    schema: str
    owner: str
    primary_key: str
    partitions: int  # 0: a plain table
    copy: int | None
    copy_partitions: int

    def name(self, table: str) -> str:
        return f"{self.schema}.{table}"


def read_layout(using: str) -> Layout:
    """Ask the server."""
    return Layout(*fetch(using, _LAYOUT)[0])


def check_dependents(using: str) -> None:
    """Raise Refused if other objects need the table: foreign keys, views, triggers, policies, publications."""
    found = fetch(using, _DEPENDENTS)
    pointing = sorted({table for table, _ in found if table})
    if pointing:
        raise Refused(
            f"Foreign key constraints of {', '.join(pointing)} lead to {TABLE}. With another primary key than id there "
            "can be none: set db_constraint=False on these fields and migrate, then run the command again."
        )
    if found:
        raise Refused(
            f"Other objects depend on {TABLE}: {', '.join(text for _, text in found)}. "
            "Drop them, run the command again, and create them anew."
        )


def fetch(using: str, query: str) -> list[tuple[Any, ...]]:
    """Read rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def execute(using: str, statements: Iterable[str]) -> int:
    """Execute one statement after the other. Return how many rows they changed."""
    with connections[using].cursor() as cursor:
        changed = 0
        for statement in statements:
            cursor.execute(statement)
            changed += max(cursor.rowcount, 0)
        return changed


def patiently(using: str, wait: float, work: Callable[[], T]) -> T:
    """Work in a transaction that waits for each lock a moment only, and again while others hold one."""
    left = LOCK_TRIES
    while True:
        try:
            with transaction.atomic(using=using):
                execute(using, [f"SET LOCAL lock_timeout = '{wait}s'", "SET LOCAL statement_timeout = 0"])
                return work()
        except OperationalError as error:
            if not may_repeat(error):
                raise
            left -= 1
            if not left:
                raise Refused(
                    f"Other transactions held locks on {TABLE} in each of {LOCK_TRIES} tries. Run the command again "
                    "when they have ended: it continues where it stopped."
                ) from error
        sleep(PAUSE)
