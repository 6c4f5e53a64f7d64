"""Statements that win a key: of all attempts, one may run."""

from typing import Any, Final
from uuid import UUID

from django.db import OperationalError

from django_idempotency.core.calls import LONGEST_STORED, Call
from django_idempotency.core.decisions import Record
from django_idempotency.core.keys import fit_name
from django_idempotency.core.policy import Expiry
from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.store.dialects import Statement, dialect_of
from django_idempotency.store.operations import StoredOperation
from django_idempotency.store.records import COLUMNS, Columns, find, find_by_key, make_record, reply_values

# No later statement writes the namespace: every attempt of a record derives the same downstream keys.
_COLUMNS: Final = """id, scope, {key}, namespace, fingerprint, tenant, principal, operation, request_method,
    request_path, attempt_token, on_lost_lease, lease_seconds, grace_seconds, retention_seconds, audit_seconds,
    created_at"""
_VALUES: Final = """%(id)s, %(scope)s, %(key)s, %(namespace)s, %(fingerprint)s, %(tenant)s, %(principal)s,
    %(operation)s, %(method)s, %(path)s, %(token)s, %(on_lost_lease)s, %(lease)s, %(grace)s, %(retention)s, %(audit)s,
    {now}"""


def _insert_once(cites: str, columns: str, values: str) -> Statement:
    template = f"INSERT INTO idempotency_key ({_COLUMNS}, {columns}) VALUES ({_VALUES}, {values}) {{or nothing}}"
    return Statement(cites, template, hot=True)


CLAIM = _insert_once(
    "T1",
    "last_run_at, grace_until, status, locked_until",
    "{now}, {now + %(quiet)s}, {limit wait 'in_progress'}, {now + %(lease)s}",
)

# Nothing of an atomic request is under way once its row is there: it has no grace period, and ran when it was made.
INSERT_FINISHED = _insert_once(
    "A1",
    "status, derived, response_status, response_headers, response_body, response_schema_version, completed_at, "
    "expires_at",
    "'completed', %(derived)s, %(response_status)s, %(response_headers)s, %(response_body)s, %(schema_version)s, "
    "{now}, {now + %(retention)s}",
)

ACCEPT = _insert_once(
    "D1",
    "last_run_at, grace_until, status, deferred, run_name, arguments, progress, locked_until, expires_at",
    "{now}, {now + %(quiet)s}, 'pending', TRUE, %(run_name)s, %(arguments)s, %(progress)s, {now + %(pick_up)s}, "
    "{now + %(retention)s}",
)

# The lock only refuses a duplicate promptly; the unique insert of the finished row decides.
LOOK_ALONE = Statement(
    "",
    f"""
    SELECT gate.mine, {COLUMNS}
    FROM (SELECT {{try lock %(gate)s}} AS mine) AS gate
    LEFT JOIN idempotency_key ON scope = %(scope)s AND id = %(id)s
    """,
    hot=True,
)

_RENEWED: Final = """
    status = 'in_progress', attempt_token = %(token)s, fingerprint = %(fingerprint)s, principal = %(principal)s,
    operation = %(operation)s, request_method = %(method)s, request_path = %(path)s,
    lease_seconds = %(lease)s, grace_seconds = %(grace)s, retention_seconds = %(retention)s, audit_seconds = %(audit)s,
    last_run_at = {now}, locked_until = {now + %(lease)s}, grace_until = {now + %(quiet)s}, tainted = FALSE,
    reconcile_after = NULL, reconcile_attempts = 0, last_error_code = '', expires_at = NULL, completed_at = NULL,
    response_status = NULL, response_headers = '', response_body = NULL, response_schema_version = NULL,
    deferred = FALSE
"""
_FROM_THE_START: Final = """
    on_lost_lease = %(on_lost_lease)s, run_name = '', arguments = '', progress = '', steps_done = 0,
    recovery_point = '', derived = FALSE, wrote = FALSE
"""
# The writes of an operation's steps are there: it continues after them instead of repeating them.
_FROM_THE_LAST_STEP: Final = """
    on_lost_lease = CASE WHEN steps_done > 0 THEN 'resume' ELSE %(on_lost_lease)s END,
    run_name = CASE WHEN steps_done > 0 THEN run_name ELSE '' END,
    arguments = CASE WHEN steps_done > 0 THEN arguments ELSE '' END,
    progress = CASE WHEN steps_done > 0 THEN progress ELSE '' END
"""

RETRY = Statement(
    "T15",
    f"""
    UPDATE idempotency_key SET {_RENEWED}, {_FROM_THE_LAST_STEP}, attempts = attempts + 1
    WHERE scope = %(scope)s AND id = %(id)s AND status = 'failed_retryable' AND attempt_token = %(read_token)s
      AND attempts < %(cap)s AND (expires_at IS NULL OR expires_at > {{now}})
    """,
)

RENEW = Statement(
    "T16'",
    f"""
    UPDATE idempotency_key SET {_RENEWED}, {_FROM_THE_START}, attempts = 1, created_at = {{now}}
    WHERE scope = %(scope)s AND id = %(id)s
      AND (status = 'expired' OR (status IN ('completed', 'failed', 'failed_retryable') AND expires_at <= {{now}}))
    """,
)

TAKE_OVER = Statement(
    "T7",
    """
    UPDATE idempotency_key
    SET status = 'in_progress', attempt_token = %(token)s, attempts = attempts + 1, tainted = TRUE,
        last_run_at = {now}, locked_until = {now + %(lease)s}, grace_until = {now + %(quiet)s},
        reconcile_after = NULL, reconcile_attempts = 0
    WHERE scope = %(scope)s AND id = %(id)s AND attempt_token = %(read_token)s
      AND on_lost_lease <> 'unknown'
      AND (status = 'unknown' OR (status = 'in_progress' AND locked_until <= {now}))
    """,
)

TARGET = Statement(
    "", "SELECT request_method, request_path, operation FROM idempotency_key WHERE scope = %(scope)s AND id = %(id)s"
)


def insert_claim(call: Call, token: UUID, using: str, seconds: float | None = None, *, namespace: str) -> Record | None:
    """Claim the key (T1). None if this token owns a new record; else the record that was there first.

    `seconds` bounds the wait for another transaction's lock; None inside a test case, whose transaction would keep it.
    """
    ref, reads_first = call.ref(using), dialect_of(using).reads_before_insert
    if reads_first and (existing := find(ref)) is not None:
        return existing
    for _ in range(2):
        try:
            if CLAIM.insert(using, {**identity(call, token), "namespace": namespace}, seconds):
                return None
        except OperationalError:  # it waited in vain, perhaps for this key's own first request
            existing = find(ref) if reads_first else None
            if existing is None:
                raise
            return existing
        existing = find(ref)
        if existing is not None:
            return existing
        # Reaped between the two statements, or stored under an id made by another rule.
    existing = find_by_key(call.scope, call.key, using)
    if existing is None:
        raise StoreUnavailable("The key's record comes and goes faster than it can be read; send the request again.")
    return existing


def look(call: Call, using: str) -> tuple[bool, Record | None]:
    """Return whether no other request runs in atomic mode with this key, and the record if there is one."""
    gate = int.from_bytes(call.id.bytes[:8], "big", signed=True)
    ((alone, *record),) = LOOK_ALONE.rows(using, scope=call.scope, id=call.id, gate=gate)
    return bool(alone), make_record(Columns._make(record)) if record[0] is not None else None


def insert_finished(
    call: Call, token: UUID, reply: Reply, using: str, *, namespace: str, derived: bool = False
) -> bool:
    """Insert the finished row of an atomic request (A1). False if the key has a record."""
    values = {**identity(call, token), **reply_values(reply), "namespace": namespace, "derived": derived}
    return INSERT_FINISHED.insert(using, values)


def accept(call: Call, token: UUID, operation: StoredOperation, pick_up: int, using: str, *, namespace: str) -> bool:
    """Insert work that no view defers (D1). False if the key has a record."""
    values: dict[str, Any] = {
        "run_name": operation.name,
        "arguments": operation.arguments,
        "progress": operation.progress,
    }
    return ACCEPT.insert(using, {**identity(call, token), **values, "namespace": namespace, "pick_up": pick_up})


def retry(call: Call, read_token: UUID | None, token: UUID, using: str) -> bool:
    """Claim a record whose earlier attempts were proven not executed (T15)."""
    values = identity(call, token)
    return RETRY.run(using, **values, read_token=read_token, cap=call.policy.attempts) == 1


def renew(call: Call, token: UUID, using: str) -> bool:
    """Claim a record whose retention is over, whether or not the reaper has run (T16')."""
    return RENEW.run(using, **identity(call, token)) == 1


def take_over(ref: Ref, read_token: UUID | None, token: UUID, lease: int, grace: int) -> bool:
    """Continue after a lost attempt (T7). The record stays tainted until a verdict clears it."""
    return TAKE_OVER.apply(ref, read_token=read_token, token=token, lease=lease, quiet=lease + grace)


def list_differing_targets(call: Call, using: str) -> list[str]:
    """Return which of method, path and operation differ from those that the record was claimed with."""
    rows = TARGET.rows(using, scope=call.scope, id=call.id)
    here = identity(call, call.id)
    names = ("method", "path", "operation")
    return [name for row in rows for name, there in zip(names, row, strict=True) if there != here[name]]


def identity(call: Call, token: UUID) -> dict[str, Any]:
    """Return what a new attempt writes about itself."""
    policy = call.policy
    lease, grace = int(policy.lease.total_seconds()), int(policy.grace.total_seconds())
    return {
        "id": call.id,
        "scope": call.scope,
        "key": call.key,
        "fingerprint": call.fingerprint,
        "tenant": fit_name(call.tenant),
        "principal": call.principal[:255],
        "operation": call.operation[:LONGEST_STORED],
        "method": call.method[:16],
        "path": call.path.replace("\0", "\N{REPLACEMENT CHARACTER}")[:LONGEST_STORED],  # PostgreSQL has no NUL
        "token": token,
        "on_lost_lease": policy.on_lost_lease.value,
        "lease": lease,
        "grace": grace,
        "quiet": lease + grace,
        "retention": None if policy.retention is None else int(policy.retention.total_seconds()),
        "audit": int(policy.audit.total_seconds()) if policy.expiry is Expiry.SOFT else None,
    }
