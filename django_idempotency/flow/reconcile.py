"""Asking a reconciler about one record, and carrying its verdict out."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from django_idempotency import signals
from django_idempotency.conf import conf
from django_idempotency.core.audit import Kind
from django_idempotency.exceptions import InsideTransaction
from django_idempotency.flow.failures import collect_evidence
from django_idempotency.flow.registry import Reconciler, find_reconciler_for
from django_idempotency.flow.schemas import enter_schema_of
from django_idempotency.flow.settle import (
    Doubt,
    DoubtfulStep,
    Inconclusive,
    Landed,
    NotLanded,
    Outcome,
    Overtaken,
    StepLanded,
    Verdict,
    announce_committed,
    backoff,
    doubtful_step,
    make_dead_letter,
    settle_as_landed,
)
from django_idempotency.flow.unattended import postpone_unattended
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce, logger
from django_idempotency.store import events, limits, operations, records, threads, verdicts
from django_idempotency.store.operations import Continuation

NO_RECONCILER_SECONDS: Final = 300.0
DELIVERY_SECONDS: Final = 30.0  # for what follows a poll, until another process may ask
LONGEST_RETRY_SECONDS: Final = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class _Failed(Inconclusive):
    """The reconciler, or the writes of its verdict, raised this."""

    error: BaseException | None = None

    @classmethod
    def with_error(cls, error: Exception) -> "_Failed":
        return cls(reason=type(error).__name__, error=error)


def reconcile_one(record: UUID, using: str, *, at_once: bool = False) -> Outcome:
    """Ask about one record. The verdict is about the attempt that was read before the reconciler was called.

    Of two processes one asks for each due time. `at_once` asks whether or not it is due, as an operator may.
    """
    row = records.load(record, using)
    doubt = Doubt.of(row)
    if row is None or doubt is None:
        return Outcome.OVERTAKEN
    if row.run_name and row.is_resumable:
        return Outcome.RESUMABLE
    step = doubtful_step(row)
    ask = find_reconciler_for(row, step)
    if ask is None:
        return postpone_unattended(doubt, NO_RECONCILER_SECONDS, "reconciler", f"no reconciler for {row.operation!r}")
    if not _win_turn(doubt) and not at_once:
        return Outcome.OVERTAKEN
    with enter_schema_of(row):
        return _settle(doubt, step, _poll(partial(_ask, ask, step), row))


def _settle(doubt: Doubt, step: DoubtfulStep | None, verdict: Verdict) -> Outcome:
    """Carry the verdict out."""
    match verdict:
        case Landed():
            return _land(doubt, verdict)
        case StepLanded(result):
            assert step is not None  # noqa: S101 - checked with the verdict
            continuation = step.landed(result)
            return _continue(doubt, operations.land_step, continuation, Kind.STEP_LANDED)
        case NotLanded():
            return _release(doubt, step)
        case Inconclusive():
            return _ask_again(doubt, verdict)


def _win_turn(doubt: Doubt) -> bool:
    """Move the due time behind the poll. False if it is not due any more: another process asks, or has asked."""
    wait = conf.RECONCILE_LIMIT.total_seconds() + DELIVERY_SECONDS
    return verdicts.win_turn(doubt.ref, doubt.token, min(wait, LONGEST_RETRY_SECONDS))


def _ask(ask: Reconciler, step: DoubtfulStep | None, row: IdempotencyKey) -> Verdict:
    """Call the reconciler, and refuse a verdict that cannot be carried out."""
    verdict = ask(row)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"A reconciler returns Landed, StepLanded, NotLanded or Inconclusive, not {verdict!r}.")
    if isinstance(verdict, StepLanded):
        if step is None:
            raise TypeError("StepLanded is about a step of an operation, and no step of this record is in doubt.")
        step.landed(verdict.result)  # raises here if the result cannot be stored
    return verdict


def _poll(ask: Reconciler, row: IdempotencyKey) -> Verdict:
    """Return the verdict, within the time limit. A reconciler that raises or hangs is inconclusive."""
    verdicts: list[Verdict] = []

    def poll() -> None:
        try:
            verdicts.append(ask(row))
        except Exception as error:  # noqa: BLE001 - whatever a reconciler fails with, the outcome stays unknown
            logger.exception("The reconciler of %r failed on record %s.", row.operation, row.id)
            verdicts.append(_Failed.with_error(error))

    if _is_test_case(row.ref.using):
        poll()  # another thread would not see the test's rows
    else:
        threads.start("poll", poll).join(conf.RECONCILE_LIMIT.total_seconds())
    return verdicts[0] if verdicts else Inconclusive(reason="timed out")


def _is_test_case(using: str) -> bool:
    try:
        return limits.inside_test_case(using)
    except InsideTransaction:
        return True


def _land(doubt: Doubt, verdict: Landed) -> Outcome:
    ref = doubt.ref
    try:
        store = partial(verdicts.land, ref, doubt.token)
        settle_as_landed(ref, verdict, Kind.LANDED, store, actor="reconciler")
    except Overtaken:
        return Outcome.OVERTAKEN
    except Exception as error:  # noqa: BLE001 - a write that fails leaves the record for the next try
        logger.exception("The writes of a verdict failed on record %s.", ref.id)
        return _ask_again(doubt, _Failed.with_error(error))
    announce_committed(signals.resolved, ref.using, record=ref.id, outcome=Outcome.LANDED)
    return Outcome.LANDED


def _continue(doubt: Doubt, settle: Callable[..., bool], continuation: Continuation, kind: Kind) -> Outcome:
    change = partial(settle, doubt.ref, doubt.token, continuation)
    done = events.audit(change, doubt.ref, kind, actor="reconciler", reason=continuation.step)
    return Outcome.RESUMABLE if done else Outcome.OVERTAKEN


def _release(doubt: Doubt, step: DoubtfulStep | None) -> Outcome:
    ref, row = doubt.ref, doubt.row
    if row.grace_left > 0:
        return _wait_for_grace(doubt, row.grace_left + 1)
    if step is not None:  # the writes of the steps before it stay, so the key is not free again
        return _continue(doubt, operations.take_step_back, step.not_executed(), Kind.STEP_NOT_EXECUTED)
    if row.deferred:  # due at once: the sweeper sends the message, or a worker looks for it
        change = partial(verdicts.requeue_deferred, ref, doubt.token, 0)
    else:
        change = partial(verdicts.release_key, ref, doubt.token)
    if not events.audit(change, ref, Kind.NOT_EXECUTED, actor="reconciler"):
        return Outcome.OVERTAKEN
    announce_committed(signals.resolved, ref.using, record=ref.id, outcome=Outcome.NOT_EXECUTED)
    return Outcome.NOT_EXECUTED


def _wait_for_grace(doubt: Doubt, seconds: float) -> Outcome:
    """Ask again once no message of the attempt can arrive any more (T11p). Not counted as a try."""
    change = partial(verdicts.postpone, doubt.ref, doubt.token, seconds)
    done = events.audit(change, doubt.ref, Kind.TOO_EARLY, actor="reconciler", details={"wait": round(seconds)})
    return Outcome.POSTPONED if done else Outcome.OVERTAKEN


def _ask_again(doubt: Doubt, verdict: Inconclusive) -> Outcome:
    """Wait for the next try, or give up when there is none."""
    ref, cap = doubt.ref, conf.RECONCILE_TRIES
    wait = backoff(doubt.row.reconcile_attempts) if verdict.retry_in is None else _bounded_seconds(verdict.retry_in)
    number = doubt.row.reconcile_attempts + 1
    details = {"try": number, "of": cap, "wait": round(wait), **_describe_poll(verdict)}
    later = partial(verdicts.ask_later, ref, doubt.token, wait, cap)
    if events.audit(later, ref, Kind.INCONCLUSIVE, actor="reconciler", reason=verdict.reason, details=details):
        announce(signals.reconcile_failed, record=ref.id, reason=verdict.reason, using=ref.using)
        return Outcome.INCONCLUSIVE
    details = {"try": number, "of": cap, **_describe_poll(verdict)}
    return make_dead_letter(ref, doubt.token, cap, actor="reconciler", reason=verdict.reason, details=details)


def _describe_poll(verdict: Inconclusive) -> dict[str, str]:
    return collect_evidence(verdict.error) if isinstance(verdict, _Failed) else {}


def _bounded_seconds(wait: timedelta | float) -> float:
    """Return seconds that lie neither in the past nor beyond a database's calendar."""
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    return min(max(1.0, seconds), LONGEST_RETRY_SECONDS)
