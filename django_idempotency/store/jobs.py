"""The statements of the maintenance jobs.

Each job reads a page without locks and then changes it row by row: every UPDATE repeats the conditions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement, among_states
from django_idempotency.store.records import ANSWER, reply_values

_HERE: Final = "scope = %(scope)s AND id = %(id)s"
_TRACED: Final = "(tainted OR derived OR wrote OR steps_done > 0)"  # a part of the effect may be there


@dataclass(frozen=True, slots=True)
class Due:
    """A row that is due for a maintenance job."""

    scope: str
    id: UUID
    status: Status
    operation: str = ""

    def ref(self, using: str) -> Ref:
        return Ref(self.scope, self.id, using)


def _page(column: str, besides: str = "") -> Statement:
    """Select rows that were due when the run began. Rows that become due during the run are left for the next one."""
    due = f"{column} <= {{now + %(began)s}} {besides}"
    columns, order = "scope, id, status, operation", f"ORDER BY {column} LIMIT %(limit)s"
    return Statement("", f"SELECT {columns} FROM idempotency_key WHERE {due} {order}")


# Operations are resumed and not asked about: neither kind may fill the pages of the other.
_RESUMABLE: Final = "(on_lost_lease = 'resume' AND run_name <> '')"
LOST = _page("locked_until", "AND status = 'in_progress'")
WAITING = _page("locked_until", "AND status = 'pending'")
UNKNOWN_DUE = _page("reconcile_after", f"AND NOT {_RESUMABLE}")
RESUMABLE = _page("reconcile_after", f"AND {_RESUMABLE} AND NOT deferred")
UNFINISHED = _page("reconcile_after", f"AND {_RESUMABLE} AND deferred")  # a worker gets a message, or looks by itself
PAST = _page("expires_at")

LAPSE = Statement(
    "T6",
    f"""
    UPDATE idempotency_key
    SET status = 'unknown', last_error_code = 'lease_over', locked_until = NULL, reconcile_after = {{now}}
    WHERE {_HERE} AND status = 'in_progress' AND locked_until <= {{now}}
    """,
)

ENQUEUED_AGAIN = Statement(
    "D3",
    f"""
    UPDATE idempotency_key SET locked_until = {{now + %(pick_up)s}}
    WHERE {_HERE} AND status = 'pending' AND locked_until <= {{now}}
    """,
)

_USED_UP: Final = "status = 'failed_retryable' AND attempts >= %(cap)s AND (expires_at IS NULL OR expires_at > {now})"
EXHAUST = Statement(
    "T15",
    f"""
    UPDATE idempotency_key SET status = 'failed', last_error_code = 'attempts_exhausted', {ANSWER}
    WHERE {_HERE} AND {_USED_UP} AND NOT {_TRACED}
    """,
)

GIVE_UP_RETRYING = Statement(
    "T15d",
    f"""
    UPDATE idempotency_key SET status = 'dead_letter', last_error_code = 'attempts_exhausted', expires_at = NULL
    WHERE {_HERE} AND {_USED_UP} AND {_TRACED}
    """,
)

ABANDON = Statement(
    "D6",
    f"""
    UPDATE idempotency_key SET status = 'failed', last_error_code = 'abandoned', {ANSWER}
    WHERE {_HERE} AND status = 'pending' AND expires_at <= {{now}} AND NOT {_TRACED}
    """,
)

# Work that may have had a part of its effect is left to a person instead.
GIVE_UP_WAITING = Statement(
    "D6d",
    f"""
    UPDATE idempotency_key
    SET status = 'dead_letter', last_error_code = 'abandoned', locked_until = NULL, expires_at = NULL
    WHERE {_HERE} AND status = 'pending' AND expires_at <= {{now}} AND {_TRACED}
    """,
)

EXPIRE = Statement(
    "T18",
    f"""
    UPDATE idempotency_key SET status = 'expired', expires_at = {{now + audit_seconds}}
    WHERE {_HERE} AND status {among_states(Status.TERMINAL)} AND audit_seconds IS NOT NULL AND expires_at <= {{now}}
    """,
)

# A record without audit time is deleted by the next reaper.
EXPIRE_NOW = Statement(
    "T18",
    f"""
    UPDATE idempotency_key SET status = 'expired', expires_at = {{now + COALESCE(audit_seconds, 0)}}
    WHERE {_HERE} AND status {among_states(Status.TERMINAL)}
    """,
)

_ENDED: Final = f"""
    expires_at <= {{now}}
    AND (status = 'expired'
         OR (status {among_states(Status.TERMINAL)} AND audit_seconds IS NULL)
         OR (status = 'failed_retryable' AND grace_until <= {{now}}))
"""
DELETE = Statement("T19 T20", f"DELETE FROM idempotency_key WHERE id {{among ids}} AND {_ENDED}")


def find_lost(limit: int, using: str, age: int = 0) -> list[Due]:
    """Return attempts whose lease expired. `age`: seconds since the run began."""
    return _read_page(LOST, limit, using, age)


def find_waiting(limit: int, using: str, age: int = 0) -> list[Due]:
    """Return deferred work that no worker picked up in time."""
    return _read_page(WAITING, limit, using, age)


def find_unfinished(limit: int, using: str, age: int = 0) -> list[Due]:
    """Return deferred work whose worker is gone or failed, and that may be continued now."""
    return _read_page(UNFINISHED, limit, using, age)


def find_doubts(limit: int, using: str, age: int = 0) -> list[Due]:
    """Return unknown outcomes that the reconciler may ask about now."""
    return _read_page(UNKNOWN_DUE, limit, using, age)


def find_resumable(limit: int, using: str, age: int = 0) -> list[Due]:
    """Return operations that may be continued now."""
    return _read_page(RESUMABLE, limit, using, age)


def find_past(limit: int, using: str, age: int = 0) -> list[Due]:
    """Return records whose retention is over."""
    return _read_page(PAST, limit, using, age)


def mark_lapsed(ref: Ref) -> bool:
    """Make the outcome of an attempt whose lease expired unknown (T6)."""
    return LAPSE.apply(ref)


def enqueued_again(ref: Ref, pick_up: int) -> bool:
    """Win the right to send the message again (D3)."""
    return ENQUEUED_AGAIN.apply(ref, pick_up=pick_up)


def exhaust(ref: Ref, cap: int, reply: Reply) -> bool:
    """Store an error response for a key that was tried too often (T15 at the cap)."""
    return EXHAUST.apply(ref, cap=cap, **reply_values(reply))


def give_up_retrying(ref: Ref, cap: int) -> bool:
    """Leave a key to a person that was tried too often, although an attempt may have had an effect (T15d)."""
    return GIVE_UP_RETRYING.apply(ref, cap=cap)


def abandon(ref: Ref, reply: Reply) -> bool:
    """Fail work that no worker ever picked up, and that cannot have had an effect (D6)."""
    return ABANDON.apply(ref, **reply_values(reply))


def give_up_waiting(ref: Ref) -> bool:
    """Leave work to a person that no worker picked up, although a part of its effect may be there (D6d)."""
    return GIVE_UP_WAITING.apply(ref)


def retire(ref: Ref) -> bool:
    """Keep the record for audit; it is never replayed (T18)."""
    return EXPIRE.apply(ref)


def expire_now(ref: Ref) -> bool:
    """Stop replaying the response, as an operator decided (T18)."""
    return EXPIRE_NOW.apply(ref)


def delete_ended(records: Iterable[UUID], using: str) -> int:
    """T19, T20: delete the records of a page that are still ended and past their retention."""
    ids = sorted(records)  # one order, so that two reapers cannot deadlock
    return DELETE.run(using, ids=ids) if ids else 0


def _read_page(statement: Statement, limit: int, using: str, age: int) -> list[Due]:
    return [
        Due(scope, record if isinstance(record, UUID) else UUID(record), Status(status), operation)
        for scope, record, status, operation in statement.rows(using, limit=limit, began=-age)
    ]
