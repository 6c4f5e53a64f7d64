"""Records in the states that the duties and the commands look for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db.models import F

from django_idempotency import FingerprintRule, Policy, Reply, json_reply
from django_idempotency.core.decisions import Call
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.flow import claim
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import doubt, finish
from django_idempotency.models import IdempotencyKey
from testproject.payments.models import LedgerEntry

OPERATION = "tests.records"
CREATED = json_reply(201, {"id": 7})


def claimed(operation: str = OPERATION, **policy: Any) -> Attempt:
    fingerprint = seal(RequestParts("POST", "/", "", "application/json", b"{}"), FingerprintRule())
    attempt = claim.begin(Call("scope", str(uuid4()), fingerprint, Policy(**policy), operation=operation))
    assert isinstance(attempt, Attempt)
    return attempt


def completed(operation: str = OPERATION, **policy: Any) -> Attempt:
    attempt = claimed(operation, **policy)
    finish(attempt, lambda: (None, CREATED))
    return attempt


def doubtful(operation: str = OPERATION) -> Attempt:
    """Its grace has passed."""
    attempt = claimed(operation)
    assert doubt(attempt, "test")
    change(attempt, grace_until=F("created_at") - timedelta(hours=1))
    return attempt


def change(attempt: Attempt, **values: Any) -> None:
    assert IdempotencyKey.objects.filter(id=attempt.call.id).update(**values) == 1


def row_of(attempt: Attempt) -> IdempotencyKey:
    return IdempotencyKey.objects.get(id=attempt.call.id)


def status_of(attempt: Attempt) -> str:
    return row_of(attempt).status


def book() -> Reply:
    LedgerEntry.objects.create(reference="r", account="a", amount=1)
    return CREATED


def bookings() -> int:
    return LedgerEntry.objects.filter(reference="r").count()
