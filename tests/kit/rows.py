"""Records in any state, written past the store, and what a record looks like now."""

from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from django.utils import timezone

from django_idempotency import FingerprintRule, Policy, Reply, Status
from django_idempotency.core.calls import Call, make_record_id
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.models import IdempotencyKey

Row: TypeAlias = dict[str, Any]

SCOPE = "scope"
NAMESPACE = "9f86d081884c"
ELSEWHERE = "d7a8fbb307d7"  # another installation's or another tenant's
LEASE, GRACE, RETENTION, AUDIT = 300, 200, 86_400, 7_200
PAST, FUTURE = timedelta(hours=-1), timedelta(hours=1)
REPLY = Reply(201, (("Content-Type", "text/plain"), ("Link", "</a>"), ("Link", "</b>")), b"\x00\xffdone", 3)
FINGERPRINT = seal(RequestParts("POST", "/pay", "", "text/plain", b"1"), FingerprintRule())

OPEN = (Status.PENDING, Status.IN_PROGRESS)
WITH_EXPIRY = (Status.PENDING, Status.COMPLETED, Status.FAILED, Status.FAILED_RETRYABLE, Status.EXPIRED)
ANSWERED = (Status.COMPLETED, Status.FAILED, Status.EXPIRED)


def a_call(key: str = "key", fingerprint: str = FINGERPRINT, scope: str = SCOPE, **policy: Any) -> Call:
    durations = {"lease": LEASE, "grace": GRACE, "retention": RETENTION}
    chosen = {name: timedelta(seconds=seconds) for name, seconds in durations.items()} | policy
    return Call(scope, key, fingerprint, Policy(**chosen), principal="me", operation="pay", method="POST", path="/pay")


def put(status: Status, key: str = "key", **columns: Any) -> UUID:
    """Write a record in this state; every time in it lies ahead unless `columns` says otherwise."""
    record = make_record_id(SCOPE, key)
    row = a_row(status) | columns
    IdempotencyKey.objects.create(id=record, scope=SCOPE, key=key, **row)
    return record


def a_row(status: Status) -> Row:
    """The columns of a plausible record in this state."""
    now = timezone.now()
    row: Row = {
        "status": status.value,
        "fingerprint": FINGERPRINT,
        "namespace": ELSEWHERE,
        "attempt_token": uuid4(),
        "lease_seconds": LEASE,
        "grace_seconds": GRACE,
        "retention_seconds": RETENTION,
        "created_at": now + PAST,
        "last_run_at": now + PAST,
        "grace_until": now + FUTURE,
        "locked_until": now + FUTURE if status in OPEN else None,
        "expires_at": now + FUTURE if status in WITH_EXPIRY else None,
        "reconcile_after": now + PAST if status is Status.UNKNOWN else None,
        "deferred": status is Status.PENDING,
    }
    if status in ANSWERED:
        row |= {"response_status": 200, "response_headers": "[]", "response_body": b"old", "completed_at": now}
    return row


def columns_for(status: Status, on: frozenset[str]) -> Row:
    """What a record in this state can say of itself, told by the names of what is so."""
    now = timezone.now()
    columns: dict[str, Any] = {
        "grace_until": now + (PAST if "grace over" in on else FUTURE),
        "last_run_at": now + (2 * PAST if "idle" in on else PAST),
        "tainted": "tainted" in on,
        "derived": "derived" in on,
        "wrote": "wrote" in on,
        "run_name": "import" if on & {"begun", "stepped"} else "",
        "steps_done": 1 if "stepped" in on else 0,
        "progress": "[1]" if "stepped" in on else "",
        "recovery_point": "paid" if "stepped" in on else "",
        "deferred": "deferred" in on or status is Status.PENDING,
        "on_lost_lease": "restart" if "resumable" in on else "unknown",
        "audit_seconds": AUDIT if "audited" in on else None,
        "attempts": 5 if "used up" in on else 4,
        "reconcile_attempts": 4 if "used up" in on else 3,
    }
    if status is Status.UNKNOWN:
        columns["reconcile_after"] = now + (FUTURE if "not due" in on else PAST)
    if status in OPEN:
        columns["locked_until"] = now + (PAST if "lease over" in on else FUTURE)
    if status in WITH_EXPIRY:
        columns["expires_at"] = now + (PAST if "retention over" in on else FUTURE)
    return columns


def snapshot(record: UUID) -> Row | None:
    """Every column as it stands now."""
    for row in IdempotencyKey.objects.filter(id=record).values():
        body = row["response_body"]
        return {**row, "response_body": None if body is None else bytes(body)}
    return None
