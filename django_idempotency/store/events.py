"""The audit trail: written beside a change that a person will want to know about, in the same transaction."""

from datetime import timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet, Value

from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyEvent, IdempotencyKey


def note(record: UUID, kind: str, cite: str, using: str, actor: str = "", reason: str = "") -> None:
    """Append one event."""
    IdempotencyEvent.objects.using(using).create(
        record_id=record, kind=kind, transition=cite, actor=_storable(actor)[:255], reason=_storable(reason)
    )


def _storable(text: str) -> str:
    """It may quote what a provider sent."""
    return text.encode(errors="replace").decode().replace("\0", "")


def past(retention: timedelta, using: str) -> QuerySet[IdempotencyEvent]:
    """Events older than that, but for those of records that nobody has settled yet."""
    unsettled = IdempotencyKey.objects.filter(id=OuterRef("record_id"), status__in=Status.OPEN)
    old = IdempotencyEvent.objects.using(using).filter(at__lte=StatementNow() - Value(retention))
    return old.filter(~Exists(unsettled)).order_by("at")


def noted(record: UUID, cite: str, using: str) -> bool:
    """Whether it was noted before."""
    return IdempotencyEvent.objects.using(using).filter(record_id=record, transition=cite).exists()
