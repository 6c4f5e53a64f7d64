"""What the sweeper, the reconciler and the reaper read and write.

Each reads a page without locks and then compares and sets row by row: the conditions stand in the UPDATE again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django_idempotency.core.identity import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement
from django_idempotency.store.records import ANSWER, reply_values

_HERE: Final = "scope = %(scope)s AND id = %(id)s"


@dataclass(frozen=True, slots=True)
class Due:
    """A row that a duty has to look at."""

    scope: str
    id: UUID
    status: Status

    def ref(self, using: str) -> Ref:
        return Ref(self.scope, self.id, using)


def _page(column: str, besides: str = "") -> Statement:
    """What was due when the run began, in seconds from now: what a run makes due again is the next one's."""
    due = f"{column} <= {{now + %(began)s}} {besides}"
    return Statement("", f"SELECT scope, id, status FROM idempotency_key WHERE {due} ORDER BY {column} LIMIT %(limit)s")


# What is gone on with is not asked about: neither kind may fill the page of the other.
_RESUMABLE: Final = "(on_lost_lease = 'resume' AND run_name <> '')"
LOST = _page("locked_until", "AND status = 'in_progress'")
WAITING = _page("locked_until", "AND status = 'pending'")
DOUBTS = _page("reconcile_after", f"AND NOT {_RESUMABLE}")
RESUMABLE = _page("reconcile_after", f"AND {_RESUMABLE} AND NOT deferred")
UNFINISHED = _page("reconcile_after", f"AND {_RESUMABLE} AND deferred")  # a worker is told, or comes by itself
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

EXHAUST = Statement(
    "T15",
    f"""
    UPDATE idempotency_key SET status = 'failed', last_error_code = 'attempts_exhausted', {ANSWER}
    WHERE {_HERE} AND status = 'failed_retryable' AND attempts >= %(cap)s
      AND (expires_at IS NULL OR expires_at > {{now}})
    """,
)

ABANDON = Statement(
    "D6",
    f"""
    UPDATE idempotency_key SET status = 'failed', last_error_code = 'abandoned', {ANSWER}
    WHERE {_HERE} AND status = 'pending' AND expires_at <= {{now}}
    """,
)

EXPIRE = Statement(
    "T18",
    f"""
    UPDATE idempotency_key SET status = 'expired', expires_at = {{now + audit_seconds}}
    WHERE {_HERE} AND status IN ('completed', 'failed') AND audit_seconds IS NOT NULL AND expires_at <= {{now}}
    """,
)

# A record that was to be deleted at its expiry is, by the next reaper.
EXPIRE_NOW = Statement(
    "T18",
    f"""
    UPDATE idempotency_key SET status = 'expired', expires_at = {{now + COALESCE(audit_seconds, 0)}}
    WHERE {_HERE} AND status IN ('completed', 'failed')
    """,
)

_ENDED: Final = """
    expires_at <= {now}
    AND (status = 'expired'
         OR (status IN ('completed', 'failed') AND audit_seconds IS NULL)
         OR (status = 'failed_retryable' AND grace_until <= {now}))
"""
DELETE = Statement(
    "T19 T20",
    {
        "postgresql": f"DELETE FROM idempotency_key WHERE id = ANY(%(ids)s) AND {_ENDED}",
        "sqlite": f"DELETE FROM idempotency_key WHERE id IN (SELECT value FROM JSON_EACH(%(ids)s)) AND {_ENDED}",
        "mysql": f"DELETE FROM idempotency_key WHERE id IN %(ids)s AND {_ENDED}",
    },
)


def lost(limit: int, using: str, began: int = 0) -> list[Due]:
    """Attempts whose lease ran out."""
    return _due(LOST, limit, using, began)


def waiting(limit: int, using: str, began: int = 0) -> list[Due]:
    """Deferred work that no worker picked up in time."""
    return _due(WAITING, limit, using, began)


def unfinished(limit: int, using: str, began: int = 0) -> list[Due]:
    """Deferred work whose worker is gone or failed, and that may be gone on with now."""
    return _due(UNFINISHED, limit, using, began)


def doubts(limit: int, using: str, began: int = 0) -> list[Due]:
    """Doubts that may be asked about now."""
    return _due(DOUBTS, limit, using, began)


def resumable(limit: int, using: str, began: int = 0) -> list[Due]:
    """Operations that somebody may go on with now."""
    return _due(RESUMABLE, limit, using, began)


def past(limit: int, using: str, began: int = 0) -> list[Due]:
    """Records whose retention is over."""
    return _due(PAST, limit, using, began)


def lapse(ref: Ref) -> bool:
    """T6: the lease is over, so nobody knows."""
    return LAPSE.apply(ref)


def enqueued_again(ref: Ref, pick_up: int) -> bool:
    """D3: this sweeper, and no other, sends the message again."""
    return ENQUEUED_AGAIN.apply(ref, pick_up=pick_up)


def exhaust(ref: Ref, cap: int, reply: Reply) -> bool:
    """T15 at the cap: tried too often; the refusal is the answer."""
    return EXHAUST.apply(ref, cap=cap, **reply_values(reply))


def abandon(ref: Ref, reply: Reply) -> bool:
    """D6: no worker ever came."""
    return ABANDON.apply(ref, **reply_values(reply))


def expire(ref: Ref) -> bool:
    """T18: kept for audit, never replayed."""
    return EXPIRE.apply(ref)


def expire_now(ref: Ref) -> bool:
    """T18 by an operator: the answer is given to nobody any more."""
    return EXPIRE_NOW.apply(ref)


def delete(records: Iterable[UUID], using: str) -> int:
    """T19, T20: delete those of a page that have still ended and are still past their time."""
    ids = sorted(records)  # one order for all, so that two reapers cannot wait for each other
    return DELETE.run(using, ids=ids) if ids else 0


def _due(statement: Statement, limit: int, using: str, began: int) -> list[Due]:
    return [
        Due(scope, record if isinstance(record, UUID) else UUID(record), Status(status))
        for scope, record, status in statement.rows(using, limit=limit, began=began)
    ]
