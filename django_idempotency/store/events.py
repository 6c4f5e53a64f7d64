"""The audit trail: an event is written in the transaction of the change that it is about."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Value

from django_idempotency.core.audit import Kind
from django_idempotency.core.refs import Ref
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyEvent
from django_idempotency.store.dialects import Statement, among_states

MOST_MISMATCHES: Final = 5  # events of one record
MISMATCH_PAUSE: Final = timedelta(minutes=1)  # once a record has so many

STILL_OPEN: Final = Statement(
    "", f"SELECT id FROM idempotency_key WHERE id {{among ids}} AND status {among_states(Status.OPEN)}"
)


Details: TypeAlias = Mapping[str, Any]
_NONE: Final[Details] = {}


def write(ref: Ref, kind: Kind, *, actor: str = "", reason: str = "", details: Details = _NONE) -> None:
    """Append one event. `details` are for people: nothing is decided by them."""
    IdempotencyEvent.objects.using(ref.using).create(
        record_id=ref.id,
        kind=kind.value,
        transition=kind.cite,
        actor=_storable(actor)[:255],
        reason=_storable(reason),
        details=json.dumps(details) if details else "",
    )


def audit(
    change: Callable[[], bool],
    ref: Ref,
    kind: Kind,
    *,
    actor: str = "",
    reason: str = "",
    details: Details = _NONE,
) -> bool:
    """Make a guarded change and write its event, in one transaction. True if the change was made."""
    with transaction.atomic(using=ref.using):
        changed = change()
        if changed:
            write(ref, kind, actor=actor, reason=reason, details=details)
    return changed


def write_mismatch(ref: Ref, *, actor: str, differs_in: Iterable[str]) -> bool:
    """Note that the key was sent with a different request. False if the record has enough of these events.

    A record has five. Then a new one replaces the oldest, once a minute: a flood of such requests writes little. A few
    processes that write at the same moment may write one event each.
    """
    latest = list(list_mismatches(ref).annotate(now=StatementNow())[:MOST_MISMATCHES])
    full = len(latest) == MOST_MISMATCHES
    if full and latest[0].now - latest[0].at < MISMATCH_PAUSE:
        return False
    with transaction.atomic(using=ref.using):
        if full:
            list_mismatches(ref).filter(at__lte=latest[-1].at).delete()
        write(ref, Kind.MISMATCH, actor=actor, reason=", ".join(differs_in))
    return True


def list_mismatches(ref: Ref) -> QuerySet[IdempotencyEvent]:
    """Return the events about requests that sent the key of this record and were different, the newest first.

    `actor` is their principal, and `reason` names the parts that differed: method, path, query, content_type, headers,
    body. It is empty where that is not known.
    """
    events = IdempotencyEvent.objects.using(ref.using)
    return events.filter(record_id=ref.id, kind=Kind.MISMATCH.value).order_by("-at", "-pk")


def exists(ref: Ref, kind: Kind) -> bool:
    """True if the trail has such an event about this record."""
    return IdempotencyEvent.objects.using(ref.using).filter(record_id=ref.id, kind=kind.value).exists()


def count_since(age: timedelta, kind: Kind, using: str) -> int:
    """Count the events of one kind that are not older than this."""
    new = IdempotencyEvent.objects.using(using).filter(at__gt=StatementNow() - Value(age))
    return new.filter(kind=kind.value).count()


def events_before(retention: timedelta, using: str) -> QuerySet[IdempotencyEvent]:
    """Return the events that are older than the retention."""
    old = IdempotencyEvent.objects.using(using).filter(at__lte=StatementNow() - Value(retention))
    return old.order_by("at", "pk")


def list_settled(events: Sequence[tuple[int, UUID]], using: str) -> list[int]:
    """Return those of the events whose record is not open: settling a record needs its story.

    The records are asked by their ids: no engine joins events with records that it distributes by scope.
    """
    named = {record for _, record in events}
    still_open = {UUID(str(record)) for (record,) in STILL_OPEN.rows(using, ids=list(named))}
    return [event for event, record in events if record not in still_open]


def _storable(text: str) -> str:
    """Replace what a database refuses: the text may quote a provider."""
    return text.encode(errors="replace").decode().replace("\0", "")
