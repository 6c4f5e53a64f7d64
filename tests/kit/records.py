"""Records in the states that the jobs and the commands look for, and how a record looks now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from django.db.models import F

from django_idempotency import Reply, Status, json_reply
from django_idempotency.core.calls import Call
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import doubt, finish
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from testproject.payments.models import LedgerEntry
from tests.kit import calls

OPERATION = "tests.records"
CREATED = json_reply(201, {"id": 7})
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

Known: TypeAlias = UUID | Call | Attempt  # all of them name one record


def claimed(operation: str = OPERATION, **policy: Any) -> Attempt:
    return calls.claimed(calls.a_call(operation=operation, **policy))


def completed(operation: str = OPERATION, **policy: Any) -> Attempt:
    attempt = claimed(operation, **policy)
    finish(attempt, lambda: (None, CREATED))
    return attempt


def doubtful(operation: str = OPERATION, *, grace_over: bool = True) -> Attempt:
    attempt = claimed(operation)
    assert doubt(attempt, "test")
    if grace_over:
        change(attempt, grace_until=F("created_at") - timedelta(hours=1))
    return attempt


def dead_letter(**columns: Any) -> Attempt:
    attempt = doubtful()
    change(attempt, status="dead_letter", reconcile_after=None, **columns)
    IdempotencyEvent.objects.create(record_id=id_of(attempt), kind="dead letter", transition="T12")
    return attempt


def id_of(known: Known) -> UUID:
    if isinstance(known, UUID):
        return known
    return known.call.id if isinstance(known, Attempt) else known.id


def row_of(known: Known) -> IdempotencyKey:
    return IdempotencyKey.objects.get(id=id_of(known))


def status_of(known: Known) -> Status:
    return Status(row_of(known).status)


def events(known: Known) -> list[tuple[str, str]]:
    """Transition and reason of each event, oldest first."""
    found = IdempotencyEvent.objects.filter(record_id=id_of(known)).order_by("id")
    return [(event.transition, event.reason) for event in found]


def change(known: Known, **columns: Any) -> None:
    """The record looks like this from now on."""
    assert IdempotencyKey.objects.filter(id=id_of(known)).update(**columns) == 1


def age(known: Known, *columns: str) -> None:
    """These times of the record are long past."""
    change(known, **dict.fromkeys(columns, LONG_AGO))


def book() -> Reply:
    LedgerEntry.objects.create(reference="r", account="a", amount=1)
    return CREATED


def bookings() -> int:
    return LedgerEntry.objects.filter(reference="r").count()
