"""Settling a doubt: what reconcilers, webhooks and operators may write."""

from uuid import UUID

from django_idempotency.core.identity import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement, among_states
from django_idempotency.store.records import ANSWER, reply_values

_HERE = "scope = %(scope)s AND id = %(id)s"
# A doubt that is settled leaves all tries to the next one. What an operation's steps did is never forgotten with them.
_SETTLED = """
    tainted = FALSE, reconcile_after = NULL, reconcile_attempts = 0,
    expires_at = CASE WHEN steps_done > 0 THEN NULL ELSE {now + retention_seconds} END
"""
# A verdict counts for the attempt it was asked about: the token is the one read before the poll.
_AS_READ = f"{_HERE} AND status = 'unknown' AND attempt_token = %(read_token)s"

LANDED = Statement("T9", f"UPDATE idempotency_key SET status = 'completed', {ANSWER} WHERE {_AS_READ}")

NOT_EXECUTED = Statement(
    "T10",
    f"""
    UPDATE idempotency_key SET status = 'failed_retryable', {_SETTLED}
    WHERE {_AS_READ} AND NOT deferred AND grace_until <= {{now}}
    """,
)

NOT_EXECUTED_DEFERRED = Statement(
    "T10",
    f"""
    UPDATE idempotency_key
    SET status = 'pending', locked_until = {{now + %(pick_up)s}}, {_SETTLED}
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

# Nobody to ask, and no code to continue it, for longer than the settings state.
UNATTENDED = Statement(
    "T12n",
    f"""
    UPDATE idempotency_key SET status = 'dead_letter', reconcile_after = NULL
    WHERE {_AS_READ} AND grace_until <= {{now}} AND last_run_at <= {{now + %(since)s}}
    """,
)

# Before the provider is asked, or a worker is sent a message: of two jobs that read the same row one wins.
WIN_TURN = Statement(
    "T11q",
    f"UPDATE idempotency_key SET reconcile_after = {{now + %(wait)s}} WHERE {_AS_READ} AND reconcile_after <= {{now}}",
)

# Asked again later without counting as a try: nobody to ask, or grace had not passed.
POSTPONE = Statement("T11p", f"UPDATE idempotency_key SET reconcile_after = {{now + %(wait)s}} WHERE {_AS_READ}")

EVIDENCE = Statement(
    "T13",
    f"""
    UPDATE idempotency_key SET status = 'completed', {ANSWER}
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

# What a person gives back has all its attempts again.
DISMISS = Statement(
    "T14",
    f"""
    UPDATE idempotency_key SET status = 'failed_retryable', attempts = 0, {_SETTLED}
    WHERE {_HERE} AND status {among_states(Status.IN_DOUBT)} AND grace_until <= {{now}}
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
    """T9: it happened, and this is the answer. Runs in the transaction of the domain write."""
    return LANDED.apply(ref, read_token=read_token, **reply_values(reply))


def release_key(ref: Ref, read_token: UUID) -> bool:
    """T10: it did not happen, and no message of it can still be on its way."""
    return NOT_EXECUTED.apply(ref, read_token=read_token)


def requeue_deferred(ref: Ref, read_token: UUID, pick_up: int) -> bool:
    """T10 for deferred work: it did not happen; a worker may take it again."""
    return NOT_EXECUTED_DEFERRED.apply(ref, read_token=read_token, pick_up=pick_up)


def ask_later(ref: Ref, read_token: UUID, wait: float, cap: int) -> bool:
    """T11: ask again later; False when the tries are used up or somebody settled it."""
    return INCONCLUSIVE.apply(ref, read_token=read_token, wait=wait, cap=cap)


def give_up(ref: Ref, read_token: UUID, cap: int) -> bool:
    """T12: the last try was inconclusive; a person has to look."""
    return GIVE_UP.apply(ref, read_token=read_token, cap=cap)


def give_up_unattended(ref: Ref, read_token: UUID, limit: float) -> bool:
    """T12n: no process that can settle it has come within the limit; a person has to look."""
    return UNATTENDED.apply(ref, read_token=read_token, since=-limit)


def win_turn(ref: Ref, read_token: UUID, wait: float) -> bool:
    """T11q: win the right to ask, or to send a message, once for this due time. The next one comes after `wait`."""
    return WIN_TURN.apply(ref, read_token=read_token, wait=wait)


def postpone(ref: Ref, read_token: UUID, wait: float) -> bool:
    """T11p: ask again later; not counted as a try."""
    return POSTPONE.apply(ref, read_token=read_token, wait=wait)


def confirm(ref: Ref, reply: Reply) -> bool:
    """T13: somebody who knows says that it happened."""
    return EVIDENCE.apply(ref, **reply_values(reply))


def deny(ref: Ref) -> bool:
    """T13'': a webhook says that it did not happen; the reconciler asks at once, under its own rules."""
    return DENIAL.apply(ref)


def dismiss(ref: Ref) -> bool:
    """T14: an operator vouches that it did not happen."""
    return DISMISS.apply(ref)


def reset(ref: Ref) -> bool:
    """T14': give the reconciler, or the resumer, all its tries once more."""
    return TRY_AGAIN.apply(ref)
