"""Delete records that have ended. Rows of other tables that point at them are left as their foreign keys say."""

from collections import Counter
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from django.db import InterfaceError, NotSupportedError, OperationalError, transaction
from django.db.models import Q

from django_idempotency.core.refs import Ref
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import logger
from django_idempotency.store import jobs, limits

_WAITS: Final = 12  # for a lock, per page: enough to find the one locked row of a thousand


def pointers() -> list[Any]:
    """Return the foreign keys of other models that lead to a record, including those without a reverse accessor."""
    fields: list[Any] = IdempotencyKey._meta.get_fields(include_hidden=True)
    return [each for each in fields if each.auto_created and (each.one_to_many or each.one_to_one)]


def constrained_pointers() -> list[Any]:
    """Return those of them that have a constraint in the database."""
    return [each for each in pointers() if each.field.db_constraint]


def delete(page: list[Ref], using: str) -> int:
    """T19, T20: delete in one statement, or through the ORM's collector if other tables point at records."""
    return _delete_with_collector(page, using) if pointers() else jobs.delete_ended((ref.id for ref in page), using)


def delete_page(page: list[Ref], using: str, counts: Counter[str]) -> set[UUID]:
    """Delete a page of records and count what happened. Return the records that another transaction holds.

    If one record cannot be deleted, the page is halved until the others are.
    """
    waits, held = 0, set[UUID]()
    parts = [page]
    while parts:
        part = parts.pop()
        try:
            counts["deleted"] += delete(part, using)
        except Exception as error:  # noqa: BLE001 - a trigger or a signal's receiver may raise anything
            contended = is_contended(error)
            waits += contended
            if contended and (len(part) == 1 or waits >= _WAITS):
                held.update(ref.id for ref in part)
            elif len(part) == 1:
                logger.exception("Idempotency record %s cannot be deleted; the next run tries again.", part[0].id)
                counts["failed"] += 1
            else:
                parts += _split(part, error)
    if held:
        counts["contended"] += len(held)
    return held


def is_contended(error: Exception) -> bool:
    """True if another transaction held the row. Raise the error if the database is gone: that ends the run."""
    lost = isinstance(error, OperationalError | InterfaceError)
    if lost and not limits.may_repeat(error):
        raise error
    return lost


def _split(part: list[Ref], error: Exception) -> list[list[Ref]]:
    """Halve the part, or part its scopes where the engine refuses to lock records of several, as Citus does."""
    scopes = [list(group) for _, group in groupby(sorted(part, key=attrgetter("scope")), key=attrgetter("scope"))]
    if isinstance(error, NotSupportedError) and len(scopes) > 1:
        return scopes
    middle = len(part) // 2
    return [part[middle:], part[:middle]]


def _delete_with_collector(page: list[Ref], using: str) -> int:
    """Delete as each foreign key's `on_delete` says. Rows are locked first: the collector deletes by id alone."""
    ended = Q(status=Status.EXPIRED) | Q(status__in=Status.TERMINAL, audit_seconds=None)
    ended |= Q(status=Status.FAILED_RETRYABLE, grace_until__lte=StatementNow())
    records = IdempotencyKey.objects.using(using)
    named = records.filter(scope__in={ref.scope for ref in page}, id__in=[ref.id for ref in page])
    with transaction.atomic(using=using):
        locked = named.select_for_update().filter(ended, expires_at__lte=StatementNow()).order_by("id")
        held = list(locked.values_list("id", flat=True))
        _, deleted = records.filter(id__in=held).only("id").delete()  # else it would read every stored body
    return deleted.get(IdempotencyKey._meta.label, 0)
