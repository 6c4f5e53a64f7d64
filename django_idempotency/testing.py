"""Helpers for a project's tests: let a lease, a grace period or a retention end now, by the database's clock."""

from datetime import timedelta
from typing import Final

from django_idempotency.fields import StatementNow
from django_idempotency.flow.cache import forget
from django_idempotency.models import IdempotencyKey

__all__ = [
    "grace_over",
    "lease_over",
    "retention_over",
]

_JUST_OVER: Final = timedelta(seconds=1)


def lease_over(record: IdempotencyKey) -> None:
    """End the lease: the attempt counts as lost, as the sweeper or the next request finds."""
    _move(record, "locked_until")


def grace_over(record: IdempotencyKey) -> None:
    """End the grace period: no message of the lost attempt is in flight, and the record is due for reconciliation."""
    _move(record, "grace_until", "reconcile_after")


def retention_over(record: IdempotencyKey) -> None:
    """End the retention: the reaper may delete the record, and a request with the key runs as new."""
    forget(record.ref)
    _move(record, "expires_at")


def _move(record: IdempotencyKey, *columns: str) -> None:
    """Move times that are set into the past; the others have no meaning in the record's state."""
    past = StatementNow() - _JUST_OVER
    for column in columns:
        rows = IdempotencyKey.objects.filter(scope=record.scope, pk=record.pk, **{f"{column}__isnull": False})
        rows.update(**{column: past})
