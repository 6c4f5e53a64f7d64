"""Deleting what has ended, without touching anybody else's rows."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import duties


def pointers() -> list[Any]:
    """The foreign keys of other models that lead to a record, those without a way back included."""
    fields: list[Any] = IdempotencyKey._meta.get_fields(include_hidden=True)
    return [each for each in fields if each.auto_created and (each.one_to_many or each.one_to_one)]


def delete(ids: list[UUID], using: str) -> int:
    """T19, T20: in one statement, or through the ORM's collector where somebody's rows point at records."""
    return _collected(ids, using) if pointers() else duties.delete(ids, using)


def _collected(ids: list[UUID], using: str) -> int:
    """The collector does what each foreign key's `on_delete` says. Locked first, because it deletes by id alone."""
    ended = Q(status=Status.EXPIRED) | Q(status__in=["completed", "failed"], audit_seconds=None)
    ended |= Q(status=Status.FAILED_RETRYABLE, grace_until__lte=StatementNow())
    records = IdempotencyKey.objects.using(using)
    with transaction.atomic(using=using):
        locked = records.select_for_update().filter(ended, id__in=ids, expires_at__lte=StatementNow()).order_by("id")
        held = list(locked.values_list("id", flat=True))
        _, deleted = records.filter(id__in=held).only("id").delete()  # else it would read every stored body
    return deleted.get(IdempotencyKey._meta.label, 0)
