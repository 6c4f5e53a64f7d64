"""What a person may do to a record besides saying how a doubt ended. Each leaves its reason in the audit trail."""

from collections.abc import Callable

from django.db import transaction

from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import reconcile_one
from django_idempotency.resolution import Reference, find_record
from django_idempotency.sending import pick_up_seconds, send_on_commit
from django_idempotency.settling import Outcome
from django_idempotency.store import duties, events, records
from django_idempotency.store.database import alias


def ask(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """Ask the reconciler about a doubt at once, under its own rules; an inconclusive answer counts as a try."""
    using = using or alias()
    row = find_record(reference, using)
    if row is None:
        return Outcome.ABSENT
    if row.status != Status.UNKNOWN:
        return Outcome.OVERTAKEN
    events.note(row.id, "asked", "", using, actor=by, reason=reason)
    return reconcile_one(row.scope, row.id, using)


def enqueue(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """D3: ask for a worker once more. Postponed while the last message may still be on its way."""
    using = using or alias()

    def again(row: IdempotencyKey) -> bool:
        won = duties.enqueued_again(row.scope, row.id, pick_up_seconds(), using)
        if won:
            send_on_commit(row.id, using)
        return won

    outcome = _noted(reference, again, Outcome.SENT, "enqueued", "D3", by, reason, using)
    if outcome is not Outcome.OVERTAKEN:
        return outcome
    row = find_record(reference, using)
    now = records.find(row.scope, row.id, using) if row is not None else None
    waits = now is not None and now.status is Status.PENDING and not now.lease_over
    return Outcome.POSTPONED if waits else Outcome.OVERTAKEN


def expire(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """T18: give the stored answer to nobody any more; the next request with the key runs as new."""
    using = using or alias()

    def now(row: IdempotencyKey) -> bool:
        return duties.expire_now(row.scope, row.id, using)

    return _noted(reference, now, Outcome.EXPIRED, "expired", "T18", by, reason, using)


def _noted(
    reference: Reference,
    change: Callable[[IdempotencyKey], bool],
    done: Outcome,
    kind: str,
    cite: str,
    by: str,
    reason: str,
    using: str,
) -> Outcome:
    """The change and its event in one transaction."""
    row = find_record(reference, using)
    if row is None:
        return Outcome.ABSENT
    with transaction.atomic(using=using):
        if not change(row):
            return Outcome.OVERTAKEN
        events.note(row.id, kind, cite, using, actor=by, reason=reason)
    return done
