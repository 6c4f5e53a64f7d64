"""Unknown outcomes that this process cannot settle: it has no reconciler to ask, or no code to continue with."""

from datetime import timedelta
from functools import partial

from django.db.models import Q

from django_idempotency import signals
from django_idempotency.conf import conf
from django_idempotency.core.audit import Kind
from django_idempotency.core.states import LostLease, Status
from django_idempotency.flow.registry import (
    find_reconciler_for,
    reconciled_operations,
    step_reconciled_operations,
)
from django_idempotency.flow.settle import Doubt, Outcome, doubtful_step, tell_dead_letter
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce
from django_idempotency.store import events, verdicts


def is_unattended(row: IdempotencyKey) -> bool:
    """True if the record's outcome is unknown, this process has no reconciler for it, and no resumer continues it."""
    if row.status != Status.UNKNOWN or is_continued(row):
        return False
    return find_reconciler_for(row, doubtful_step(row)) is None


def is_continued(row: IdempotencyKey) -> bool:
    """True if the resumer or a worker continues the operation, whose steps so far are certain."""
    return row.status == Status.UNKNOWN and row.run_name != "" and row.is_resumable


def waits_for_retry(row: IdempotencyKey) -> bool:
    """True if a retry of the client runs the work again (T7), which no process does by itself."""
    return row.status == Status.UNKNOWN and row.run_name == "" and row.is_resumable and not row.deferred


def needs_person(operation: str, run_name: str, on_lost_lease: str) -> bool:
    """True if such an unknown outcome has no reconciler, and it is neither continued nor restarted by a retry."""
    if on_lost_lease == LostLease.RESTART or (run_name and on_lost_lease == LostLease.RESUME):
        return False
    return not has_reconciler(operation, run_name)


def has_reconciler(operation: str, run_name: str) -> bool:
    """True if this process has a reconciler for such a record. One of a single step counts for all steps here."""
    return operation in reconciled_operations() or run_name in step_reconciled_operations()


def match_resumable() -> Q:
    """Match the operations that the resumer continues."""
    return Q(status=Status.UNKNOWN.value, on_lost_lease=LostLease.RESUME.value) & ~Q(run_name="")


def match_unattended() -> Q:
    """Match what `needs_person` describes."""
    asked = Q(operation__in=reconciled_operations()) | Q(run_name__in=step_reconciled_operations())
    restarted = Q(on_lost_lease=LostLease.RESTART.value)
    return Q(status=Status.UNKNOWN.value, reconcile_after__isnull=False) & ~asked & ~restarted & ~match_resumable()


def postpone_unattended(doubt: Doubt, seconds: float, actor: str, reason: str) -> Outcome:
    """Wait for a process that can settle the record; after `UNATTENDED_LIMIT` it becomes a dead letter (T12n)."""
    ref, limit = doubt.ref, conf.UNATTENDED_LIMIT
    announce(signals.unattended, record=ref.id, reason=reason, using=ref.using)
    if limit is not None and _has_waited(doubt.row, limit):
        change = partial(verdicts.give_up_unattended, ref, doubt.token, limit.total_seconds())
        if events.audit(change, ref, Kind.DEAD_LETTER, actor=actor, reason=reason):
            return tell_dead_letter(ref, reason)
    return Outcome.POSTPONED if verdicts.postpone(ref, doubt.token, seconds) else Outcome.OVERTAKEN


def _has_waited(row: IdempotencyKey, limit: timedelta) -> bool:
    """True if it is worth a statement to give the record up; the statement decides."""
    return row.last_run_at is not None and row.grace_left <= 0 and row.read_at - row.last_run_at >= limit
