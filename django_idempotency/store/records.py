"""Reading records and writing their responses. Of a time is read what is left of it, by the database's clock."""

from typing import Any, Final
from uuid import UUID

from django_idempotency.core.decisions import Record
from django_idempotency.core.identity import Ref
from django_idempotency.core.policy import LostLease
from django_idempotency.core.replies import Reply, dump_headers, load_headers
from django_idempotency.core.states import Status
from django_idempotency.exceptions import UnreadableReply
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.dialects import Statement

COLUMNS: Final = """
    id, scope, {key}, status, fingerprint, attempt_token, attempts, tainted, deferred, on_lost_lease,
    {left locked_until}, {left grace_until}, {left expires_at},
    response_status, response_headers, response_body, response_schema_version
"""

FIND = Statement("", f"SELECT {COLUMNS} FROM idempotency_key WHERE scope = %(scope)s AND id = %(id)s")
FIND_BY_KEY = Statement("", f"SELECT {COLUMNS} FROM idempotency_key WHERE {{key}} = %(key)s AND scope = %(scope)s")


def find(ref: Ref) -> Record | None:
    """Read what requests decide by."""
    rows = FIND.rows(ref.using, scope=ref.scope, id=ref.id)
    return read(rows[0]) if rows else None


def load(record: UUID, using: str) -> IdempotencyKey | None:
    """Read a whole record, and the database's time with it: all that settling, workers and status views need."""
    return IdempotencyKey.objects.using(using).with_time().filter(id=record).first()


def reply_of(row: IdempotencyKey) -> Reply | None:
    """Return the response that a whole record holds."""
    if row.response_status is None:
        return None
    return _reply(row.response_status, row.response_headers, row.response_body, row.response_schema_version)


def find_by_key(scope: str, key: str, using: str) -> Record | None:
    """Read the record of a key whose id was made by another rule."""
    rows = FIND_BY_KEY.rows(using, scope=scope, key=key)
    return read(rows[0]) if rows else None


def read(row: tuple[Any, ...]) -> Record:
    """Make a record of the columns, in their order."""
    return Record(
        id=_uuid(row[0]),
        scope=row[1],
        key=row[2],
        status=Status(row[3]),
        fingerprint=row[4],
        token=row[5] and _uuid(row[5]),
        attempts=row[6],
        tainted=bool(row[7]),
        deferred=bool(row[8]),
        on_lost_lease=LostLease(row[9]),
        lease_left=_seconds(row[10]),
        grace_left=_seconds(row[11]),
        expires_in=_seconds(row[12]),
        reply=_reply(*row[13:17]) if row[13] is not None else None,
    )


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _reply(status: int, headers: str, body: bytes | memoryview | None, version: int | None) -> Reply:
    """Make a reply; a body that cannot be read is withheld, because its effect must not run again."""
    try:
        pairs, content = load_headers(headers), None if body is None else bytes(body)
    except UnreadableReply:
        pairs, content = (), None
    return Reply(status=status, headers=pairs, body=content, schema_version=version or 1)


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
        "schema_version": reply.schema_version,
    }
