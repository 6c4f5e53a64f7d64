"""Statements of the owner of an attempt. Each one has to find the attempt's token in the record."""

from typing import Final
from uuid import UUID

from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement, among_states
from django_idempotency.store.operations import StoredOperation
from django_idempotency.store.records import ANSWER, reply_values

_DERIVED: Final = "derived = (derived OR %(derived)s)"
_MINE: Final = "scope = %(scope)s AND id = %(id)s AND attempt_token = %(token)s"

# While an earlier attempt is in doubt, an error response proves nothing: that attempt may still land. An operation
# whose steps are all done has its proof in the record, so its error response counts like a success.
COMPLETE = Statement(
    "T3 T3'",
    f"""
    UPDATE idempotency_key SET status = 'completed', last_error_code = '', {_DERIVED}, {ANSWER}
    WHERE {_MINE} AND status {among_states(Status.OWNED)} AND (%(success)s OR NOT tainted)
    """,
    hot=True,
)

# An operation that marked a step has already done something: it continues from there instead.
RELEASE = Statement(
    "T4",
    f"""
    UPDATE idempotency_key
    SET status = 'failed_retryable', last_error_code = %(code)s, locked_until = NULL, {_DERIVED},
        attempts = CASE WHEN %(counts)s THEN attempts ELSE 0 END,
        expires_at = {{now + retention_seconds}}
    WHERE {_MINE} AND status = 'in_progress' AND NOT tainted AND NOT deferred AND steps_done = 0
    """,
)

# Without a fingerprint the key is as good as new: the client may correct its request and keep its key. After a
# downstream call it may not, because a different request would send the same downstream keys.
GIVE_BACK = Statement(
    "T4",
    f"""
    UPDATE idempotency_key
    SET status = 'failed_retryable', last_error_code = %(code)s, locked_until = NULL, attempts = 0,
        fingerprint = CASE WHEN derived THEN fingerprint ELSE '' END,
        expires_at = {{now + retention_seconds}}
    WHERE {_MINE} AND status = 'in_progress' AND NOT tainted AND NOT deferred AND steps_done = 0
    """,
)

DOUBT = Statement(
    "T5",
    f"""
    UPDATE idempotency_key
    SET status = 'unknown', last_error_code = %(code)s, locked_until = NULL, reconcile_after = {{now}},
        {_DERIVED}
    WHERE {_MINE} AND status = 'in_progress'
    """,
)

# A lease may be extended after it expired, until another process notices: the token is still the owner's.
EXTEND = Statement(
    "T2e",
    f"""
    UPDATE idempotency_key SET locked_until = {{now + %(lease)s}}, grace_until = {{now + %(quiet)s}}
    WHERE {_MINE} AND status = 'in_progress'
    """,
)

# An operation that has begun keeps its name and progress. `run_name` is set last: MySQL reads what it has just set.
DEFER = Statement(
    "D0",
    f"""
    UPDATE idempotency_key
    SET status = 'pending', deferred = TRUE, on_lost_lease = 'resume', locked_until = {{now + %(pick_up)s}},
        expires_at = {{now + retention_seconds}}, {_DERIVED}, wrote = (wrote OR %(wrote)s),
        progress = CASE WHEN run_name = '' THEN %(progress)s ELSE progress END,
        arguments = CASE WHEN run_name = '' THEN %(arguments)s ELSE arguments END,
        run_name = CASE WHEN run_name = '' THEN %(run_name)s ELSE run_name END
    WHERE {_MINE} AND status = 'in_progress'
    """,
)

REQUEUE = Statement(
    "D5",
    f"""
    UPDATE idempotency_key
    SET status = 'pending', last_error_code = %(code)s, attempts = attempts + 1,
        locked_until = {{now + %(pick_up)s}}, expires_at = {{now + retention_seconds}}, {_DERIVED}
    WHERE {_MINE} AND status = 'in_progress' AND deferred AND NOT tainted AND attempts < %(cap)s
    """,
)

PICK_UP = Statement(
    "D2",
    """
    UPDATE idempotency_key
    SET status = 'in_progress', attempt_token = %(token)s, last_run_at = {now}, locked_until = {now + lease_seconds},
        grace_until = {now + lease_seconds + grace_seconds}, expires_at = NULL
    WHERE scope = %(scope)s AND id = %(id)s AND attempt_token = %(read_token)s AND status = 'pending'
    """,
)


def complete(ref: Ref, token: UUID, reply: Reply, *, success: bool, derived: bool = False) -> bool:
    """Store the response (T3, T3'). False if the record is no longer this attempt's to end."""
    values = reply_values(reply)
    return COMPLETE.apply(ref, token=token, success=success, derived=derived, **values)


def free_key(ref: Ref, token: UUID, code: str, *, derived: bool = False, counts: bool = True) -> bool:
    """Free the key for the next request (T4).

    `derived`: it is not proven that a downstream call did nothing. `counts`: the attempt failed; otherwise the view
    answered, and the next request need not wait.
    """
    return RELEASE.apply(ref, token=token, code=code[:64], derived=derived, counts=counts)


def give_back(ref: Ref, token: UUID, code: str) -> bool:
    """Free the key, even for a different request: this one was rejected before anything happened (T4)."""
    return GIVE_BACK.apply(ref, token=token, code=code[:64])


def mark_doubtful(ref: Ref, token: UUID, code: str, *, derived: bool = False) -> bool:
    """Make the outcome unknown, due for reconciliation at once (T5)."""
    return DOUBT.apply(ref, token=token, code=code[:64], derived=derived)


def extend(ref: Ref, token: UUID, lease: int, grace: int) -> bool:
    """Move the end of the lease (T2e). False if the lease was lost."""
    values = {"lease": lease, "quiet": lease + grace}
    return EXTEND.apply(ref, token=token, **values)


def hand_over(
    ref: Ref, token: UUID, operation: StoredOperation, pick_up: int, *, wrote: bool = False, derived: bool = False
) -> bool:
    """Hand the work to a worker (D0). The row is the outbox."""
    return DEFER.apply(ref, token=token, pick_up=pick_up, wrote=wrote, derived=derived, **operation.values)


def pick_up(ref: Ref, read_token: UUID, token: UUID) -> bool:
    """Take the work as a worker (D2). False if the message came too early, twice or too late."""
    return PICK_UP.apply(ref, read_token=read_token, token=token)


def put_back(ref: Ref, token: UUID, code: str, cap: int, pick_up: int, *, derived: bool = False) -> bool:
    """Let the work wait for a worker again: it is proven that nothing happened (D5)."""
    values = {"code": code[:64], "cap": cap, "pick_up": pick_up, "derived": derived}
    return REQUEUE.apply(ref, token=token, **values)
