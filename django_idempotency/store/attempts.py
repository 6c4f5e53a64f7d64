"""What the owner of an attempt may write: every statement still has to find the attempt's token."""

from typing import Final
from uuid import UUID

from django_idempotency.core.replies import Reply
from django_idempotency.store.dialects import Statement
from django_idempotency.store.operations import Run
from django_idempotency.store.records import ANSWER, reply_values

_MINE: Final = "scope = %(scope)s AND id = %(id)s AND attempt_token = %(token)s"

# While an earlier attempt is in doubt a refusal proves nothing: that attempt may still land. An operation whose steps
# are all done has its proof in the record, so its refusal counts as `success` does.
COMPLETE = Statement(
    "T3 T3'",
    f"""
    UPDATE idempotency_key SET status = 'completed', last_error_code = '', {ANSWER}
    WHERE {_MINE} AND status IN ('in_progress', 'unknown') AND (%(success)s OR NOT tainted)
    """,
)

# An operation that marked a step did something already: it goes on from there instead.
RELEASE = Statement(
    "T4",
    f"""
    UPDATE idempotency_key
    SET status = 'failed_retryable', last_error_code = %(code)s, locked_until = NULL,
        expires_at = {{now + retention_seconds}}
    WHERE {_MINE} AND status = 'in_progress' AND NOT tainted AND NOT deferred AND steps_done = 0
    """,
)

# Without a fingerprint the key is as good as new: the client may correct its request and keep the key.
GIVE_BACK = Statement(
    "T4",
    f"""
    UPDATE idempotency_key
    SET status = 'failed_retryable', last_error_code = %(code)s, locked_until = NULL, fingerprint = '', attempts = 0,
        expires_at = {{now + retention_seconds}}
    WHERE {_MINE} AND status = 'in_progress' AND NOT tainted AND NOT deferred AND steps_done = 0
    """,
)

DOUBT = Statement(
    "T5",
    f"""
    UPDATE idempotency_key
    SET status = 'unknown', last_error_code = %(code)s, locked_until = NULL, reconcile_after = {{now}}
    WHERE {_MINE} AND status = 'in_progress'
    """,
)

# A lease may be extended after it ran out, as long as nobody has noticed: the token is still the owner's.
EXTEND = Statement(
    "T2e",
    f"""
    UPDATE idempotency_key SET locked_until = {{now + %(lease)s}}, grace_until = {{now + %(quiet)s}}
    WHERE {_MINE} AND status = 'in_progress'
    """,
)

# What was begun goes on with what stands there; `run_name` is set last, because MySQL reads what it has set.
# What is in doubt, or did a step, is never abandoned as if nothing had been done: then there is no expiry.
DEFER = Statement(
    "D0",
    f"""
    UPDATE idempotency_key
    SET status = 'pending', deferred = TRUE, on_lost_lease = 'resume', locked_until = {{now + %(pick_up)s}},
        expires_at = CASE WHEN tainted OR steps_done > 0 THEN NULL ELSE {{now + retention_seconds}} END,
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
        locked_until = {{now + %(pick_up)s}},
        expires_at = CASE WHEN steps_done > 0 THEN NULL ELSE {{now + retention_seconds}} END
    WHERE {_MINE} AND status = 'in_progress' AND deferred AND NOT tainted AND attempts < %(cap)s
    """,
)

PICK_UP = Statement(
    "D2",
    """
    UPDATE idempotency_key
    SET status = 'in_progress', attempt_token = %(token)s, last_run_at = {now}, locked_until = {now + lease_seconds},
        grace_until = {now + lease_seconds + grace_seconds}, expires_at = NULL
    WHERE scope = %(scope)s AND id = %(id)s AND status = 'pending'
    """,
)


def complete(scope: str, record: UUID, token: UUID, reply: Reply, success: bool, using: str) -> bool:
    """T3, T3': store the answer. False when the record is no longer this attempt's to end."""
    values = reply_values(reply)
    return COMPLETE.run(using, scope=scope, id=record, token=token, success=success, **values) == 1


def release(scope: str, record: UUID, token: UUID, code: str, using: str) -> bool:
    """T4: proven not executed; the next request may claim the key."""
    return RELEASE.run(using, scope=scope, id=record, token=token, code=code[:64]) == 1


def give_back(scope: str, record: UUID, token: UUID, code: str, using: str) -> bool:
    """T4: refused before anything happened; the next request may be another one."""
    return GIVE_BACK.run(using, scope=scope, id=record, token=token, code=code[:64]) == 1


def doubt(scope: str, record: UUID, token: UUID, code: str, using: str) -> bool:
    """T5: nobody knows; due for reconciliation at once."""
    return DOUBT.run(using, scope=scope, id=record, token=token, code=code[:64]) == 1


def extend(scope: str, record: UUID, token: UUID, lease: int, grace: int, using: str) -> bool:
    """T2e: move the end of the lease; False when the lease was lost."""
    values = {"lease": lease, "quiet": lease + grace}
    return EXTEND.run(using, scope=scope, id=record, token=token, **values) == 1


def defer(scope: str, record: UUID, token: UUID, run: Run, pick_up: int, using: str) -> bool:
    """D0: hand the work to a worker; the row is the outbox."""
    values = {"run_name": run.name, "arguments": run.arguments, "progress": run.progress, "pick_up": pick_up}
    return DEFER.run(using, scope=scope, id=record, token=token, **values) == 1


def pick_up(scope: str, record: UUID, token: UUID, using: str) -> bool:
    """D2: a worker takes the work; False when the message was early, doubled or late."""
    return PICK_UP.run(using, scope=scope, id=record, token=token) == 1


def requeue(scope: str, record: UUID, token: UUID, code: str, cap: int, pick_up: int, using: str) -> bool:
    """D5: proven not executed; the work waits for a worker again."""
    values = {"code": code[:64], "cap": cap, "pick_up": pick_up}
    return REQUEUE.run(using, scope=scope, id=record, token=token, **values) == 1
