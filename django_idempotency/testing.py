"""For the tests of projects: what takes minutes and days is over now, by the database's clock."""

from datetime import timedelta
from typing import Final

from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyKey

__all__ = [
    "grace_over",
    "lease_over",
    "retention_over",
]

_JUST_OVER: Final = timedelta(seconds=1)


def lease_over(record: IdempotencyKey) -> None:
    """The attempt that runs counts as lost: the sweeper, or the next request, finds it."""
    _move(record, "locked_until")


def grace_over(record: IdempotencyKey) -> None:
    """No message of a lost attempt is on its way any more; what waits to be asked about is due."""
    _move(record, "grace_until", "reconcile_after")


def retention_over(record: IdempotencyKey) -> None:
    """The answer need not be kept any longer."""
    _move(record, "expires_at")


def _move(record: IdempotencyKey, *columns: str) -> None:
    """A time that is not set stays so: it has no meaning in the record's state."""
    past = StatementNow() - _JUST_OVER
    for column in columns:
        rows = IdempotencyKey.objects.filter(pk=record.pk, **{f"{column}__isnull": False})
        rows.update(**{column: past})
