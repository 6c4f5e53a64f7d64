"""Records in the state that a test needs: a lease, a grace period or a retention that has ended, an unknown outcome."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.flow.cache import forget
from django_idempotency.flow.claim import lapse
from django_idempotency.models import IdempotencyKey
from django_idempotency.testing.crashes import crash_at

_JUST_OVER: Final = timedelta(seconds=1)


def lease_over(record: IdempotencyKey) -> None:
    """End the lease: for the sweeper and for the next request, the attempt counts as lost."""
    _move(record, "locked_until")


def grace_over(record: IdempotencyKey) -> None:
    """End the grace period: the lost attempt has no effect any more, and the record is due for reconciliation."""
    _move(record, "grace_until", "reconcile_after")


def retention_over(record: IdempotencyKey) -> None:
    """End the retention: the reaper may delete the record, and a request with the key runs as new."""
    forget(record.ref)
    _move(record, "expires_at")


def unknown(subject: IdempotencyKey | Callable[[], object]) -> IdempotencyKey:
    """Lose the attempt of a record that is in progress, or of the request that a function sends; return the record.

    The request is killed after its view has done its work, and its lease ends at once.
    """
    record = subject if isinstance(subject, IdempotencyKey) else _lose(subject)
    lease_over(record)
    lapse(record.ref)
    record.refresh_from_db()
    if record.status != Status.UNKNOWN:
        raise ValueError(f"This record is {record.status}. Only a record that is in progress can become unknown.")
    return record


def _lose(send: Callable[[], object]) -> IdempotencyKey:
    with crash_at("view") as crashed:
        send()
    if crashed.record is None:
        raise ValueError("The lost request left no record: in atomic mode an outcome is never unknown.")
    return crashed.record


def _move(record: IdempotencyKey, *columns: str) -> None:
    """Move times that are set into the past; the others have no meaning in the record's state."""
    past = StatementNow() - _JUST_OVER
    for column in columns:
        rows = IdempotencyKey.objects.filter(scope=record.scope, pk=record.pk, **{f"{column}__isnull": False})
        rows.update(**{column: past})
