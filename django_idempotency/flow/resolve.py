"""Settling a record with what a webhook or an operator knows, and what else an operator may do to it.

    resolve("5a1f…-charge", Landed(write=partial(book, charge)), by="provider")

Each change leaves its actor and reason in the audit trail.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias
from uuid import UUID

from django.db import Error, connections

from django_idempotency import signals
from django_idempotency.core.audit import Kind
from django_idempotency.core.calls import make_record_id
from django_idempotency.core.refs import Ref, parse_namespace, parse_record_id
from django_idempotency.core.states import Status
from django_idempotency.flow.cache import forget
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
    doubtful_step,
    finished_step_keys,
    settle_as_landed,
)
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import logger
from django_idempotency.store import events, jobs, operations, records, verdicts
from django_idempotency.store.records import alias

Reference: TypeAlias = UUID | str | tuple[str, str]


def find_record(reference: Reference, using: str | None = None) -> IdempotencyKey | None:
    """Return the record with this id, this downstream key or this (scope, key); None if there is none.

    Another installation may have a record with the same id. A downstream key of its namespace is not this record's.
    """
    if isinstance(reference, tuple):
        return records.load(make_record_id(*reference), using or alias())
    record = parse_record_id(reference)
    row = None if record is None else records.load(record, using or alias())
    return row if row is not None and parse_namespace(reference) in (None, row.namespace) else None


def resolve(
    reference: Reference,
    verdict: Landed | StepLanded | NotLanded,
    *,
    by: str,
    reason: str = "",
    operator: bool = False,
    using: str | None = None,
) -> Outcome:
    """Settle a record with what a webhook or an operator knows.

    An operator vouches for the verdict and has to give a reason. A webhook that says that nothing happened only makes
    the reconciler ask at once.
    """
    if operator and not reason:
        raise ValueError("An operator's resolution needs a reason: it is kept in the audit trail.")
    row = find_record(reference, using)
    if row is None:
        return Outcome.ABSENT
    if isinstance(verdict, Landed):
        _require_whole_operation(verdict, reference, row)
        if not operator and row.status not in Status.ENDED and _is_about_another_step(reference, row):
            return _unchanged(row)
        return _confirm(row, verdict, by, reason)
    if isinstance(verdict, NotLanded) and not operator:
        return _deny(row, by, reason)
    step = doubtful_step(row)
    if not may_be_about(step, reference, row):
        return _unchanged(row)
    if isinstance(verdict, StepLanded):
        return _confirm_step(row, step, verdict.result, by, reason)
    return _dismiss(row, by, reason) if step is None else _dismiss_step(row, step, by, reason)


def try_again(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """Give a dead letter all its tries once more (T14')."""
    return _change(reference, verdicts.reset, Kind.RESET, Outcome.ASKED, by, reason, using)


def ask(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """Ask the reconciler at once, under its usual rules: an inconclusive verdict counts as a try."""
    row = find_record(reference, using)
    if row is None:
        return Outcome.ABSENT
    if row.status != Status.UNKNOWN:
        return Outcome.OVERTAKEN
    events.write(row.ref, Kind.ASKED, actor=by, reason=reason)
    return reconcile_one(row.id, row.ref.using, at_once=True)


def requeue(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """Send another message to a worker (D3). Postponed while the last one may still arrive."""

    def requeue(ref: Ref) -> bool:
        won = jobs.enqueued_again(ref, pick_up_seconds())
        if won:
            send_on_commit(ref.id, ref.using)
        return won

    outcome = _change(reference, requeue, Kind.REQUEUED, Outcome.SENT, by, reason, using)
    if outcome is not Outcome.OVERTAKEN:
        return outcome
    row = find_record(reference, using)
    waits = row is not None and row.status == Status.PENDING and not row.lease_over
    return Outcome.POSTPONED if waits else Outcome.OVERTAKEN


def expire(reference: Reference, *, by: str, reason: str, using: str | None = None) -> Outcome:
    """Stop replaying the stored response (T18): the next request with the key runs as new."""
    return _change(reference, _expire_now, Kind.EXPIRED, Outcome.EXPIRED, by, reason, using)


def _expire_now(ref: Ref) -> bool:
    forget(ref)
    return jobs.expire_now(ref)


def _change(
    reference: Reference,
    change: Callable[[Ref], bool],
    kind: Kind,
    done: Outcome,
    by: str,
    reason: str,
    using: str | None,
) -> Outcome:
    row = find_record(reference, using)
    if row is None:
        return Outcome.ABSENT
    changed = events.audit(partial(change, row.ref), row.ref, kind, actor=by, reason=reason)
    return done if changed else Outcome.OVERTAKEN


def may_be_about(step: DoubtfulStep | None, reference: Reference, row: IdempotencyKey) -> bool:
    """True unless the reference is the downstream key of a step that is not in doubt."""
    return not _names_a_step(reference, row) or (step is not None and reference == step.key)


def _is_about_another_step(reference: Reference, row: IdempotencyKey) -> bool:
    """True if this evidence must not settle the record: it concerns another step, or one that is already done.

    Evidence about a step whose mark was taken back is believed: that step is neither.
    """
    if not _names_a_step(reference, row):
        return False
    step = doubtful_step(row)
    return reference in finished_step_keys(row) if step is None else reference != step.key


def _require_whole_operation(verdict: Landed, reference: Reference, row: IdempotencyKey) -> None:
    """Reject a response for the whole operation that may be meant for its step in doubt."""
    step = doubtful_step(row) if _names_a_step(reference, row) else None
    if step is not None and reference == step.key and not verdict.ends_operation:
        raise ValueError(
            f"{reference} is the downstream key of the step {step.name!r}, and Landed would end the whole operation "
            f"{row.run_name!r}: pass StepLanded(result), or Landed(…, ends_operation=True) if nothing is left to do."
        )


def _names_a_step(reference: Reference, row: IdempotencyKey) -> bool:
    return row.run_name != "" and isinstance(reference, str) and len(reference) > len(str(row.id))


def _unchanged(row: IdempotencyKey) -> Outcome:
    return Outcome.RUNNING if row.status == Status.IN_PROGRESS else Outcome.OVERTAKEN


def _confirm(row: IdempotencyKey, verdict: Landed, by: str, reason: str) -> Outcome:
    """Complete the record (T13). A write that fails because its row exists already was overtaken as well."""
    if row.status not in Status.SETTLEABLE:
        return _too_late(row, by, reason)
    ref = row.ref
    try:
        settle_as_landed(ref, verdict, Kind.CONFIRMED, partial(verdicts.confirm, ref), actor=by, reason=reason)
    except Overtaken:
        return _too_late(_read_again(row), by, reason)
    except Error:
        now = _read_again(row)
        if now is not None and now.status in Status.SETTLEABLE:
            raise
        return _too_late(now, by, reason)
    announce_committed(signals.resolved, ref.using, record=ref.id, outcome=Outcome.LANDED)
    return Outcome.LANDED


def _read_again(row: IdempotencyKey) -> IdempotencyKey | None:
    """Return what the record is now; what it was, if the caller's transaction can read nothing more."""
    using = row.ref.using
    return row if connections[using].needs_rollback else records.load(row.id, using)


def _too_late(row: IdempotencyKey | None, by: str, reason: str) -> Outcome:
    """Tell what evidence met that could change nothing."""
    if row is None:
        return Outcome.OVERTAKEN
    if row.status != Status.FAILED:
        return Outcome.OVERTAKEN if row.status in Status.ENDED else Outcome.RUNNING
    # T13e: clients were told that it failed, and keep that response; but what happened is booked nowhere.
    if not events.exists(row.ref, Kind.CONFIRMED_TOO_LATE):  # a webhook is delivered more than once
        events.write(row.ref, Kind.CONFIRMED_TOO_LATE, actor=by, reason=reason)
        logger.error(
            "Idempotency record %s ended as failed, but %s reports that it happened: a person has to look at it.",
            row.id,
            by,
        )
    return Outcome.TOO_LATE


def _confirm_step(row: IdempotencyKey, step: DoubtfulStep | None, result: object, by: str, reason: str) -> Outcome:
    """Store the result of the step in doubt (T13s)."""
    if step is None:
        return _unchanged(row)
    change = partial(operations.confirm_step, row.ref, step.landed(result))
    done = events.audit(change, row.ref, Kind.STEP_CONFIRMED, actor=by, reason=reason or step.name)
    return Outcome.RESUMABLE if done else _unchanged(row)


def _deny(row: IdempotencyKey, by: str, reason: str) -> Outcome:
    """Make the reconciler ask at once (T13'')."""
    done = events.audit(partial(verdicts.deny, row.ref), row.ref, Kind.DENIED, actor=by, reason=reason)
    return Outcome.ASKED if done else _unchanged(row)


def _dismiss(row: IdempotencyKey, by: str, reason: str) -> Outcome:
    """Free the key: an operator vouches that nothing happened (T14)."""
    if not events.audit(partial(verdicts.dismiss, row.ref), row.ref, Kind.DISMISSED, actor=by, reason=reason):
        return _not_dismissed(row)
    announce_committed(signals.resolved, row.ref.using, record=row.id, outcome=Outcome.NOT_EXECUTED)
    return Outcome.NOT_EXECUTED


def _dismiss_step(row: IdempotencyKey, step: DoubtfulStep, by: str, reason: str) -> Outcome:
    """Take the step's mark back (T14s). The writes of the steps before it stay, so the key is not free again."""
    change = partial(operations.dismiss_step, row.ref, step.not_executed())
    done = events.audit(change, row.ref, Kind.STEP_DISMISSED, actor=by, reason=reason)
    return Outcome.RESUMABLE if done else _not_dismissed(row)


def _not_dismissed(row: IdempotencyKey) -> Outcome:
    waits = row.status in Status.IN_DOUBT and row.grace_left > 0
    return Outcome.POSTPONED if waits else _unchanged(row)
