"""What somebody knows about a doubt: webhooks tell, operators vouch.

resolve("5a1f…-charge", Landed(write=partial(book, charge)), by="gateway")
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias
from uuid import UUID

from django.db import Error, connections, transaction

from django_idempotency import signals
from django_idempotency.core.decisions import Record, record_id
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.flow.messages import pick_up_seconds, send_on_commit
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.flow.settle import (
    DoubtfulStep,
    Landed,
    NotLanded,
    Outcome,
    Overtaken,
    StepLanded,
    announce_committed,
    done_keys,
    doubtful_step,
    settle_together,
)
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import logger
from django_idempotency.store import duties, events, operations, records, verdicts
from django_idempotency.store.database import alias
from django_idempotency.store.operations import GoOn

Reference: TypeAlias = UUID | str | tuple[str, str]


def find_record(reference: Reference, using: str | None = None) -> IdempotencyKey | None:
    """Return the record with this id, this downstream key or this (scope, key); None if there is none."""
    using = using or alias()
    if isinstance(reference, tuple):
        return IdempotencyKey.objects.using(using).filter(id=record_id(*reference)).first()
    text = str(reference)
    try:
        record = UUID(text[:36])
    except ValueError:
        return None
    if len(text) > 36 and text[36] != "-":
        return None
    return IdempotencyKey.objects.using(using).filter(id=record).first()


def resolve(
    reference: Reference,
    verdict: Landed | StepLanded | NotLanded,
    *,
    by: str,
    reason: str = "",
    operator: bool = False,
    using: str | None = None,
) -> Outcome:
    """What a webhook or an operator knows.

    An operator vouches for it and gives a reason; a webhook's denial is only a reason to ask at once.
    """
    using = using or alias()
    if operator and not reason:
        raise ValueError("An operator's resolution needs a reason: it is kept in the audit trail.")
    row = find_record(reference, using)
    seen = records.find(row.scope, row.id, using) if row is not None else None
    if row is None or seen is None:
        return Outcome.ABSENT
    if isinstance(verdict, Landed):
        if not operator and seen.status not in Status.ENDED and _about_another(reference, row):
            return _unchanged(seen)
        return _evidence(seen, verdict, by, reason, using)
    if isinstance(verdict, NotLanded) and not operator:
        return _denied(seen, by, reason, using)
    step = doubtful_step(row)
    if not _about_it(reference, row, step):
        return _unchanged(seen)
    if isinstance(verdict, StepLanded):
        return _step_landed(seen, None if step is None else step.landed(verdict.result), by, reason, using)
    return _dismiss(seen, None if step is None else step.not_executed(), by, reason, using)


def _about_it(reference: Reference, row: IdempotencyKey, step: DoubtfulStep | None) -> bool:
    """An operation's derived key is about its own step; what names only the record is about the step in doubt."""
    return not _names_a_step(reference, row) or (step is not None and reference == step.key)


def _about_another(reference: Reference, row: IdempotencyKey) -> bool:
    """Whether evidence leaves the doubt as it is: another step is in doubt, or the one it is about is done already.

    A step that was taken back is neither, and evidence against that is believed.
    """
    if not _names_a_step(reference, row):
        return False
    step = doubtful_step(row)
    return reference in done_keys(row) if step is None else reference != step.key


def _names_a_step(reference: Reference, row: IdempotencyKey) -> bool:
    return row.run_name != "" and isinstance(reference, str) and len(reference) > len(str(row.id))


def _unchanged(seen: Record) -> Outcome:
    return Outcome.RUNNING if seen.status is Status.IN_PROGRESS else Outcome.OVERTAKEN


def _evidence(seen: Record, verdict: Landed, by: str, reason: str, using: str) -> Outcome:
    if seen.status not in Status.SETTLEABLE:
        return _standing(seen.status, seen, by, reason, using)
    try:
        store = partial(_by_evidence, seen, using)
        settle_together(seen, verdict, "T13", using, store, actor=by, reason=reason)
    except (Overtaken, Error) as problem:
        # A write that is refused because the same row exists already was overtaken too.
        now = records.find(seen.scope, seen.id, using) if not connections[using].needs_rollback else seen
        if isinstance(problem, Error) and now is not None and now.status in Status.SETTLEABLE:
            raise
        return _standing(now.status if now is not None else Status.EXPIRED, seen, by, reason, using)
    announce_committed(signals.resolved, using, record=seen.id, outcome=Outcome.LANDED)
    return Outcome.LANDED


def _standing(status: Status, seen: Record, by: str, reason: str, using: str) -> Outcome:
    """What evidence that changed nothing met: a record that has ended, or one that is still on its way."""
    if status is Status.FAILED:
        return _too_late(seen, by, reason, using)
    return Outcome.OVERTAKEN if status in Status.ENDED else Outcome.RUNNING


def _too_late(seen: Record, by: str, reason: str, using: str) -> Outcome:
    """T13e: clients were told that it failed, and that answer stays; but what happened is booked nowhere."""
    if not events.noted(seen.id, "T13e", using):  # a webhook is delivered more than once
        events.note(seen.id, "evidence after the end", "T13e", using, actor=by, reason=reason)
        logger.error(
            "Idempotency record %s ended as failed, and %s says that it happened after all: a person has to look.",
            seen.id,
            by,
        )
    return Outcome.TOO_LATE


def _by_evidence(seen: Record, using: str, reply: Reply) -> bool:
    return verdicts.evidence(seen.scope, seen.id, reply, using)


def _step_landed(seen: Record, go_on: GoOn | None, by: str, reason: str, using: str) -> Outcome:
    with transaction.atomic(using=using):
        done = go_on is not None and operations.evidence(seen.scope, seen.id, go_on, using)
        if go_on is not None and done:
            events.note(seen.id, "step landed", "T13s", using, actor=by, reason=reason or go_on.step)
    return Outcome.RESUMABLE if done else _unchanged(seen)


def _denied(seen: Record, by: str, reason: str, using: str) -> Outcome:
    with transaction.atomic(using=using):
        done = verdicts.denial(seen.scope, seen.id, using)
        if done:
            events.note(seen.id, "denied", "T13''", using, actor=by, reason=reason)
    return Outcome.ASKED if done else _unchanged(seen)


def _dismiss(seen: Record, go_on: GoOn | None, by: str, reason: str, using: str) -> Outcome:
    with transaction.atomic(using=using):
        if go_on is None:
            done = verdicts.dismiss(seen.scope, seen.id, using)
        else:  # what the steps before it wrote stays, so the key is not free again
            done = operations.dismiss(seen.scope, seen.id, go_on, using)
        if done:
            events.note(seen.id, "dismissed", "T14" if go_on is None else "T14s", using, actor=by, reason=reason)
    if not done:
        waits = seen.status in Status.IN_DOUBT and (seen.grace_left or 0) > 0
        return Outcome.POSTPONED if waits else _unchanged(seen)
    if go_on is not None:
        return Outcome.RESUMABLE
    announce_committed(signals.resolved, using, record=seen.id, outcome=Outcome.NOT_EXECUTED)
    return Outcome.NOT_EXECUTED


def try_again(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """T14': a dead letter gets all its tries once more."""
    using = using or alias()
    row = find_record(reference, using)
    if row is None:
        return Outcome.ABSENT
    with transaction.atomic(using=using):
        if not verdicts.try_again(row.scope, row.id, using):
            return Outcome.OVERTAKEN
        events.note(row.id, "asked again", "T14'", using, actor=by, reason=reason)
    return Outcome.ASKED


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
