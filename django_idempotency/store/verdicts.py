"""Statements that settle an unknown outcome: what reconcilers, webhooks and operators may write."""

from uuid import UUID

from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement, among_states
from django_idempotency.store.records import ANSWER, reply_values

_HERE = "scope = %(scope)s AND id = %(id)s"
# Settling gives all tries back. If steps are done, the record does not expire: their writes must not be forgotten.
_SETTLED = """
    tainted = FALSE, derived = FALSE, reconcile_after = NULL, reconcile_attempts = 0,
    expires_at = {now + CASE WHEN steps_done > 0 THEN NULL ELSE retention_seconds END}
"""
# A verdict counts for the attempt it was asked about: the token is the one that was read before the poll.
_AS_READ = f"{_HERE} AND status = 'unknown' AND attempt_token = %(read_token)s"

# What landed was sent downstream: an error response does not show that nothing happened. Without a token, no attempt
# takes this response for its own: one may have stood still at a COMMIT that was rolled back.
_LANDED = f"status = 'completed', derived = TRUE, attempt_token = NULL, {ANSWER}"

LANDED = Statement("T9", f"UPDATE idempotency_key SET {_LANDED} WHERE {_AS_READ}")

NOT_EXECUTED = Statement(
    "T10",
    f"""
    UPDATE idempotency_key SET status = 'failed_retryable', {_SETTLED}
    WHERE {_AS_READ} AND NOT deferred AND grace_until <= {{now}}
    """,
)

# The verdict is about the worker's attempt: what the view derived before it deferred the work is not asked about.
NOT_EXECUTED_DEFERRED = Statement(
    "T10",
    f"""
    UPDATE idempotency_key
    SET status = 'pending', locked_until = {{now + %(pick_up)s}}, tainted = FALSE, reconcile_after = NULL,
        reconcile_attempts = 0, expires_at = {{now + retention_seconds}}
    WHERE {_AS_READ} AND deferred AND grace_until <= {{now}}
    """,
)

INCONCLUSIVE = Statement(
    "T11",
    f"""
    UPDATE idempotency_key
    SET reconcile_attempts = reconcile_attempts + 1, reconcile_after = {{now + %(wait)s}}
    WHERE {_AS_READ} AND reconcile_attempts + 1 < %(cap)s
    """,
)

GIVE_UP = Statement(
    "T12",
    f"""
    UPDATE idempotency_key
    SET status = 'dead_letter', reconcile_attempts = reconcile_attempts + 1, reconcile_after = NULL
    WHERE {_AS_READ} AND reconcile_attempts + 1 >= %(cap)s
    """,
)

# For longer than the settings allow, there was no reconciler to ask and no code to continue with.
UNATTENDED = Statement(
    "T12n",
    f"""
    UPDATE idempotency_key SET status = 'dead_letter', reconcile_after = NULL
    WHERE {_AS_READ} AND grace_until <= {{now}} AND last_run_at <= {{now + %(since)s}}
    """,
)

# Before the provider is asked, or a worker is sent a message: of two jobs that read the same row one wins.
# Only an unknown outcome has a time for its next check, as a constraint says, so the status is not named again.
WIN_TURN = Statement(
    "T11q",
    f"""
    UPDATE idempotency_key SET reconcile_after = {{now + %(wait)s}}
    WHERE {_HERE} AND attempt_token = %(read_token)s AND reconcile_after <= {{now}}
    """,
)

# Ask again later without counting a try: there is no reconciler, or the grace period has not passed.
POSTPONE = Statement("T11p", f"UPDATE idempotency_key SET reconcile_after = {{now + %(wait)s}} WHERE {_AS_READ}")

EVIDENCE = Statement(
    "T13",
    f"""
    UPDATE idempotency_key SET {_LANDED}
    WHERE {_HERE} AND status {among_states(Status.SETTLEABLE)}
    """,
)

DENIAL = Statement(
    "T13''",
    f"""
    UPDATE idempotency_key SET status = 'unknown', reconcile_after = {{now}}
    WHERE {_HERE} AND status {among_states(Status.IN_DOUBT)} AND attempt_token IS NOT NULL
    """,
)

# An operator's word is a new start: it gives all attempts back. The view must not run again after writes that its
# acceptance committed, so such work is tried again instead.
DISMISS = Statement(
    "T14",
    f"""
    UPDATE idempotency_key SET status = 'failed_retryable', attempts = 0, {_SETTLED}
    WHERE {_HERE} AND status {among_states(Status.IN_DOUBT)} AND grace_until <= {{now}} AND NOT wrote
    """,
)

TRY_AGAIN = Statement(
    "T14'",
    f"""
    UPDATE idempotency_key SET status = 'unknown', reconcile_attempts = 0, attempts = 0, reconcile_after = {{now}}
    WHERE {_HERE} AND status = 'dead_letter'
    """,
)


def land(ref: Ref, read_token: UUID, reply: Reply) -> bool:
    """Complete the record with this response (T9), in the transaction of the domain write."""
    return LANDED.apply(ref, read_token=read_token, **reply_values(reply))


def release_key(ref: Ref, read_token: UUID) -> bool:
    """Free the key: it did not happen, and no message of it can still arrive (T10)."""
    return NOT_EXECUTED.apply(ref, read_token=read_token)


def requeue_deferred(ref: Ref, read_token: UUID, pick_up: int) -> bool:
    """Let deferred work wait for a worker again: it did not happen (T10)."""
    return NOT_EXECUTED_DEFERRED.apply(ref, read_token=read_token, pick_up=pick_up)


def ask_later(ref: Ref, read_token: UUID, wait: float, cap: int) -> bool:
    """Ask again later (T11). False if the tries are used up or the record was settled."""
    return INCONCLUSIVE.apply(ref, read_token=read_token, wait=wait, cap=cap)


def give_up(ref: Ref, read_token: UUID, cap: int) -> bool:
    """Leave the record to a person: the last try was inconclusive (T12)."""
    return GIVE_UP.apply(ref, read_token=read_token, cap=cap)


def give_up_unattended(ref: Ref, read_token: UUID, limit: float) -> bool:
    """Leave the record to a person: no process that can settle it has appeared within the limit (T12n)."""
    return UNATTENDED.apply(ref, read_token=read_token, since=-limit)


def win_turn(ref: Ref, read_token: UUID, wait: float) -> bool:
    """Win the right to ask, or to send a message, once for this due time (T11q). The next turn comes after `wait`."""
    return WIN_TURN.apply(ref, read_token=read_token, wait=wait)


def postpone(ref: Ref, read_token: UUID, wait: float) -> bool:
    """Ask again later, without counting a try (T11p)."""
    return POSTPONE.apply(ref, read_token=read_token, wait=wait)


def confirm(ref: Ref, reply: Reply) -> bool:
    """Complete the record on the word of a webhook or an operator (T13)."""
    return EVIDENCE.apply(ref, **reply_values(reply))


def deny(ref: Ref) -> bool:
    """Let the reconciler ask at once, under its usual rules: a webhook reports that it did not happen (T13'')."""
    return DENIAL.apply(ref)


def dismiss(ref: Ref) -> bool:
    """Free the key on the word of an operator (T14)."""
    return DISMISS.apply(ref)


def reset(ref: Ref) -> bool:
    """Give the reconciler, or the resumer, all its tries again (T14')."""
    return TRY_AGAIN.apply(ref)
