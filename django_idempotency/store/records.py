"""Reading records and writing their responses. Of a time is read what is left of it, by the database's clock."""

from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import router

from django_idempotency.core.decisions import Record
from django_idempotency.core.effects import Effect, effect_of
from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply, dump_headers, load_headers
from django_idempotency.core.states import LostLease, Status
from django_idempotency.exceptions import UnreadableReply
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.dialects import Statement


def alias() -> str:
    """The database of the records: always the one that is written to."""
    return router.db_for_write(IdempotencyKey)


class Columns(NamedTuple):
    """What requests decide by: the columns that statements read, in their order. Times are read as seconds left."""

    id: UUID | str
    scope: str
    key: str
    status: str
    fingerprint: str
    attempt_token: UUID | str | None
    attempts: int
    tainted: bool
    derived: bool
    wrote: bool
    steps_done: int
    deferred: bool
    namespace: str
    on_lost_lease: str
    due_at: Any
    grace_until: Any
    expires_at: Any
    last_run_at: Any
    created_at: Any
    response_status: int | None
    response_headers: str
    response_body: bytes | memoryview | None
    response_schema_version: int | None


# A record has a lease or a time of its next check, never both: the constraints see to it.
_TIMES: Final = ("grace_until", "expires_at", "last_run_at", "created_at")
_RENDERED: Final = {"key": "{key}", "due_at": "{left COALESCE(locked_until,reconcile_after)}"} | {
    name: f"{{left {name}}}" for name in _TIMES
}
COLUMNS: Final = ", ".join(_RENDERED.get(name, name) for name in Columns._fields)

FIND = Statement("", f"SELECT {COLUMNS} FROM idempotency_key WHERE scope = %(scope)s AND id = %(id)s", hot=True)
FIND_BY_KEY = Statement("", f"SELECT {COLUMNS} FROM idempotency_key WHERE {{key}} = %(key)s AND scope = %(scope)s")


def find(ref: Ref) -> Record | None:
    """Read what requests decide by."""
    rows = FIND.rows(ref.using, scope=ref.scope, id=ref.id)
    return make_record(Columns._make(rows[0])) if rows else None


def load(record: UUID, using: str) -> IdempotencyKey | None:
    """Read a whole record, and the database's time with it: all that settling, workers and status views need."""
    return IdempotencyKey.objects.using(using).with_time().filter(id=record).first()


def find_by_key(scope: str, key: str, using: str) -> Record | None:
    """Read the record of a key whose id was made by another rule."""
    rows = FIND_BY_KEY.rows(using, scope=scope, key=key)
    return make_record(Columns._make(rows[0])) if rows else None


def make_record(columns: Columns) -> Record:
    """Make a record of its columns."""
    due, status = _seconds(columns.due_at), Status(columns.status)
    return Record(
        id=_uuid(columns.id),
        scope=columns.scope,
        key=columns.key,
        status=status,
        fingerprint=columns.fingerprint,
        token=None if columns.attempt_token is None else _uuid(columns.attempt_token),
        attempts=columns.attempts,
        tainted=bool(columns.tainted),
        derived=bool(columns.derived),
        wrote=bool(columns.wrote),
        steps_done=columns.steps_done,
        deferred=bool(columns.deferred),
        namespace=columns.namespace,
        on_lost_lease=LostLease(columns.on_lost_lease),
        lease_left=None if status is Status.UNKNOWN else due,
        check_in=due if status is Status.UNKNOWN else None,
        grace_left=_seconds(columns.grace_until),
        expires_in=_seconds(columns.expires_at),
        ran_ago=None if columns.last_run_at is None else -float(columns.last_run_at),
        age=None if columns.created_at is None else -float(columns.created_at),
        reply=reply_of(columns),
    )


def as_read(row: IdempotencyKey) -> Record:
    """Return what requests decide by, from a whole record. Policies get a record in this form."""
    times = {name: getattr(row, name) for name in _TIMES} | {"due_at": row.locked_until or row.reconcile_after}
    left = {name: None if at is None else (at - row.read_at).total_seconds() for name, at in times.items()}
    return make_record(Columns._make(left[name] if name in left else getattr(row, name) for name in Columns._fields))


def read_effect(row: IdempotencyKey) -> Effect:
    """Return what is known about the effect of a record's request; its body need not be loaded for that."""
    return effect_of(Status(row.status), row.response_status, row.grace_left, traced=row.traced)


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def reply_of(row: IdempotencyKey | Columns) -> Reply | None:
    """Return the response that a record holds. One that cannot be read is withheld: its effect must not run again."""
    if row.response_status is None:
        return None
    body = row.response_body
    try:
        headers, content = load_headers(row.response_headers), None if body is None else bytes(body)
    except UnreadableReply:
        headers, content = (), None
    return Reply(row.response_status, headers, content, row.response_schema_version or 1)


# Entering a terminal state starts the retention of the response.
ANSWER: Final = """
    response_status = %(response_status)s, response_headers = %(response_headers)s,
    response_body = %(response_body)s, response_schema_version = %(schema_version)s,
    completed_at = {now}, expires_at = {now + retention_seconds}, locked_until = NULL, reconcile_after = NULL
"""


def reply_values(reply: Reply) -> dict[str, Any]:
    """Return a reply as parameters of the statements."""
    return {
        "response_status": reply.status,
        "response_headers": dump_headers(reply),
        "response_body": reply.body,
        "schema_version": None if reply.schema_version == 1 else reply.schema_version,
    }
