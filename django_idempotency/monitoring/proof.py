"""Proves on a live database that it keeps every promise. Run it before you use one that the docs do not list.

It reads and writes only records of its own, and deletes them.
"""

from collections.abc import Callable, Sequence

from django.db.models import QuerySet

from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.monitoring.findings import Code, Finding
from django_idempotency.monitoring.places import STATEMENT_SECONDS, Broken, Place, connected
from django_idempotency.monitoring.promises import PROMISES, reserved_records
from django_idempotency.store.limits import limited


class Busy(Exception):
    """Another proof is running on this database, or one was killed a moment ago."""


def prove(using: str, places: Sequence[Place], progress: Callable[[str], None]) -> list[Finding]:
    """Try every promise, and return those that do not hold.

    Busy if another proof is running. StoreUnavailable if what was written could not be deleted.
    """
    found = list[Finding]()
    _prepare(using)
    for name, hold in PROMISES.items():
        progress(name)
        try:
            with connected(places):
                hold(places)
        except Broken as broken:
            found.append(Finding(Code.PROMISE, {"promise": name, "reason": str(broken)}))
        finally:
            _delete_records(using)
    return found


def _prepare(using: str) -> None:
    """Delete what a proof left that was killed."""
    with limited(using, STATEMENT_SECONDS):
        if _records(using).filter(locked_until__gt=StatementNow()).exists():
            raise Busy
    _delete_records(using)


def _delete_records(using: str) -> None:
    with limited(using, STATEMENT_SECONDS):
        _records(using).delete()
        IdempotencyEvent.objects.using(using).filter(record_id__in=reserved_records()).delete()


def _records(using: str) -> QuerySet[IdempotencyKey]:
    return IdempotencyKey.objects.using(using).filter(id__in=reserved_records())
