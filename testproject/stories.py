"""A few records with a past worth reading, told through the library itself; only their times are moved back."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from django_idempotency import FingerprintRule, Policy, json_reply
from django_idempotency.core.audit import Kind
from django_idempotency.core.decisions import Call
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.core.policy import Expiry
from django_idempotency.core.progress import Progress
from django_idempotency.flow import claim
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import doubt, finish, release
from django_idempotency.flow.resolve import expire
from django_idempotency.http.requests import scope_of
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import Landed, NotLanded, resolve
from django_idempotency.store import events, operations, verdicts

USING = "default"
CHARGE = {"id": 4711, "amount": 12500, "currency": "EUR", "customer": "ada", "charge": "ch_9f2c", "settled_at": None}
ORDER = json.dumps({"amount": 12500, "currency": "EUR", "customer": "ada"}).encode()


def tell() -> int:
    """One record for each story; nothing where they were told before."""
    stories = (
        running,
        paid,
        refused,
        unanswered,
        given_up,
        settled_by_webhook,
        settled_by_hand,
        withdrawn,
        half_a_ride,
    )
    if IdempotencyKey.objects.filter(key__startswith="story-").exists():
        return 0
    for minutes, story in enumerate(stories, start=1):
        move_back(story().call.id, timedelta(minutes=7 * minutes))
    return len(stories)


def claimed(key: str, operation: str = "payments.create", path: str = "/payments/", **policy: Any) -> Attempt:
    fingerprint = seal(RequestParts("POST", path, "", "application/json", ORDER), FingerprintRule())
    scope, chosen = scope_of("user:7", operation), Policy(**policy)
    call = Call(scope, f"story-{key}", fingerprint, chosen, "user:7", operation, "POST", path)
    attempt = claim.begin(call)
    if not isinstance(attempt, Attempt):
        raise TypeError(f"The story {key!r} has begun already.")
    return attempt


def paid() -> Attempt:
    attempt = claimed("paid-41d0-8c55-aa21f00d7e11")
    finish(attempt, lambda: (None, json_reply(201, CHARGE, [("Location", "/payments/4711/")])))
    return attempt


def refused() -> Attempt:
    attempt = claimed("refused-4e7b-9f02-51c83ad0be72")
    release(attempt, "GatewayUnreachable")
    return attempt


def unanswered() -> Attempt:
    attempt = claimed("unanswered-4f0a-b1d4-07cc9e51a3f8")
    doubt(attempt, "GatewayUnanswered")
    return attempt


def given_up() -> Attempt:
    attempt = claimed("given-up-4c19-8e3d-f6a2b7d90c14")
    doubt(attempt, "GatewayUnanswered")
    events.write(attempt.ref, Kind.ASKED, actor="admin", reason="The customer calls: was she charged?")
    record(attempt).update(reconcile_attempts=9)
    dead_letter(attempt, "the gateway answers 503 to every question")
    return attempt


def settled_by_webhook() -> Attempt:
    attempt = claimed("webhook-4a6e-93b7-2d40c1e85f69")
    doubt(attempt, "GatewayUnanswered")
    resolve(attempt.call.id, Landed(json_reply(201, CHARGE)), by="gateway webhook", reason="charge.succeeded ch_9f2c")
    return attempt


def settled_by_hand() -> Attempt:
    attempt = claimed("by-hand-4d52-a7f1-90be63c7d824")
    doubt(attempt, "WorkerLost")
    record(attempt).update(grace_until=timezone.now() - timedelta(hours=1))
    why = "The provider's ledger holds no charge for this key; asked their support, ticket 20931."
    resolve(attempt.call.id, NotLanded(), by="admin", reason=why, operator=True)
    return attempt


def withdrawn() -> Attempt:
    attempt = claimed("withdrawn-4b88-8d06-3ea7f5c1b920", expiry=Expiry.SOFT)
    finish(attempt, lambda: (None, json_reply(201, CHARGE)))
    expire(attempt.call.id, by="admin", reason="The stored answer named the wrong customer.")
    return attempt


def half_a_ride() -> Attempt:
    attempt = claimed("ride-4399-b0c2-6f18d7a4e053", "rides.create", "/rides/")
    arguments = {"owner": 7, "origin": "Harbour", "target": "Airport", "amount": 2000}
    first = Progress().done("ride_created", 88).done("audited", None)
    begun = operations.StoredOperation("rides.create", json.dumps(arguments), Progress().dump(), 0)
    operations.begin(attempt.ref, attempt.token, begun)
    progress = first.started("charge_created").dump()
    record(attempt).update(progress=progress, recovery_point="audited", steps_done=3, on_lost_lease="unknown")
    doubt(attempt, "GatewayUnanswered")
    return attempt


def running() -> Attempt:
    return claimed("running-47c3-9a15-e80b2d6f41ca", lease=timedelta(minutes=30))


def dead_letter(attempt: Attempt, why: str) -> None:
    verdicts.give_up(attempt.ref, attempt.token, 10)
    events.write(attempt.ref, Kind.DEAD_LETTER, actor="reconciler", reason=why)


def record(attempt: Attempt) -> Any:
    return IdempotencyKey.objects.filter(id=attempt.call.id)


def move_back(found: UUID, by: timedelta) -> None:
    """As if it had begun then, with some minutes between what happened; the other times follow from these."""
    told = list(IdempotencyEvent.objects.filter(record_id=found).order_by("id"))
    for number, event in enumerate(told, start=1):
        at_once = event.kind == "in doubt"  # the gateway's time limit is short
        back = by - timedelta(seconds=10) if at_once else by * (1 - number / (len(told) + 1))
        IdempotencyEvent.objects.filter(pk=event.pk).update(at=F("at") - back)
    row = IdempotencyKey.objects.get(id=found)
    row.created_at, ended = row.created_at - by, by / (len(told) + 1)
    row.last_run_at, lease = row.created_at, timedelta(seconds=row.lease_seconds)
    row.grace_until = row.created_at + lease + timedelta(seconds=row.grace_seconds)
    if row.locked_until is not None:
        row.locked_until = row.created_at + lease
    if row.completed_at is not None:
        landed = any(event.kind == "confirmed" for event in told)
        row.completed_at = row.completed_at - ended if landed else row.created_at + timedelta(seconds=1.4)
    if row.expires_at is not None:
        row.expires_at -= ended
    row.save()
