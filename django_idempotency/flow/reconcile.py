"""Finding out what became of a doubt: a reconciler asks the other side.

@reconciler("payments.create")
def ask_the_gateway(record):
    charge = gateway.find(record.derive("charge"))
    if charge is None:
        return NotLanded()
    return Landed(write=partial(book, charge))
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from django.db import connections, transaction

from django_idempotency import signals
from django_idempotency.conf import conf
from django_idempotency.core.decisions import Record
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import InsideTransaction
from django_idempotency.flow.registry import Reconciler, StepReconciler, find_reconciler, find_step_reconciler
from django_idempotency.flow.settle import (
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
    settle_together,
)
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce, logger
from django_idempotency.store import events, limits, operations, records, verdicts
from django_idempotency.store.operations import GoOn

NOBODY_TO_ASK_SECONDS: Final = 300.0
LONGEST_WAIT_SECONDS: Final = 365 * 86400.0


def reconcile_one(scope: str, record: UUID, using: str) -> Outcome:
    """Ask about one doubt. The token and the grace are read before the poll: the verdict is about that attempt."""
    seen = records.find(scope, record, using)
    if seen is None or seen.status is not Status.UNKNOWN or seen.token is None:
        return Outcome.OVERTAKEN
    row = IdempotencyKey.objects.using(using).get(scope=scope, id=record)
    if row.run_name and seen.resumable:
        return Outcome.RESUMABLE
    step = doubtful_step(row)
    ask = _whom_to_ask(row, step)
    if ask is None:
        return _postpone(seen, NOBODY_TO_ASK_SECONDS, using)
    verdict = _polled(partial(_checked, ask, step), row, using)
    match verdict:
        case Landed():
            return _land(seen, verdict, row.reconcile_attempts, using)
        case StepLanded(result):
            assert step is not None  # noqa: S101 - checked with the verdict
            return _goes_on(seen, operations.landed, step.landed(result), "step landed", "T9s", using)
        case NotLanded():
            return _not_executed(seen, step, using)
        case Inconclusive():
            return _inconclusive(seen, verdict, row.reconcile_attempts, using)


def _whom_to_ask(row: IdempotencyKey, step: DoubtfulStep | None) -> Reconciler | None:
    """The nearest: the step's own reconciler, else the operation's."""
    ask = None if step is None else find_step_reconciler(row.run_name, step.name)
    if step is not None and ask is not None:
        return partial(_ask_about_step, ask, step.key)
    return find_reconciler(row.operation)


def _ask_about_step(ask: StepReconciler, key: str, record: IdempotencyKey) -> Verdict:
    return ask(record, key)


def _checked(ask: Reconciler, step: DoubtfulStep | None, row: IdempotencyKey) -> Verdict:
    """The answer, when it is one that can be carried out."""
    verdict = ask(row)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"A reconciler answers Landed, StepLanded, NotLanded or Inconclusive, not {verdict!r}.")
    if isinstance(verdict, StepLanded):
        if step is None:
            raise TypeError("StepLanded is about a step of an operation, and no step of this record is in doubt.")
        step.landed(verdict.result)  # raises here what cannot be stored
    return verdict


def _polled(ask: Reconciler, row: IdempotencyKey, using: str) -> Verdict:
    """The verdict, within the time limit. A reconciler that raises or hangs says nothing."""
    answers: list[Verdict] = []

    def poll() -> None:
        try:
            answers.append(ask(row))
        except Exception as error:  # noqa: BLE001 - whatever a reconciler fails with, the doubt stays
            logger.exception("The reconciler of %r failed on record %s.", row.operation, row.id)
            answers.append(Inconclusive(reason=type(error).__name__))

    if _in_test_case(using):
        poll()  # another thread would not see the test's rows
    else:
        limit = conf.RECONCILE_LIMIT.total_seconds()
        thread = threading.Thread(target=_closing_connections, args=(poll,), daemon=True, name="idempotency-poll")
        thread.start()
        thread.join(limit)
    return answers[0] if answers else Inconclusive(reason="timed out")


def _in_test_case(using: str) -> bool:
    try:
        return limits.inside_test_case(using)
    except InsideTransaction:
        return True


def _closing_connections(poll: Callable[[], None]) -> None:
    try:
        poll()
    finally:
        connections.close_all()


def _land(seen: Record, verdict: Landed, tries: int, using: str) -> Outcome:
    try:
        settle_together(seen, verdict, "T9", using, partial(_landed, seen, using), actor="reconciler")
    except Overtaken:
        return Outcome.OVERTAKEN
    except Exception as error:  # noqa: BLE001 - a write that fails leaves the doubt for the next try
        logger.exception("The writes of a verdict failed on record %s.", seen.id)
        return _inconclusive(seen, Inconclusive(reason=type(error).__name__), tries, using)
    announce_committed(signals.resolved, using, record=seen.id, outcome=Outcome.LANDED)
    return Outcome.LANDED


def _landed(seen: Record, using: str, reply: Reply) -> bool:
    assert seen.token is not None  # noqa: S101 - read with it
    return verdicts.landed(seen.scope, seen.id, seen.token, reply, using)


def _goes_on(seen: Record, write: Callable[..., bool], go_on: GoOn, kind: str, cite: str, using: str) -> Outcome:
    with transaction.atomic(using=using):
        done = write(seen.scope, seen.id, seen.token, go_on, using)
        if done:
            events.note(seen.id, kind, cite, using, actor="reconciler", reason=go_on.step)
    return Outcome.RESUMABLE if done else Outcome.OVERTAKEN


def _not_executed(seen: Record, step: DoubtfulStep | None, using: str) -> Outcome:
    assert seen.token is not None  # noqa: S101 - read with it
    if seen.grace_left is not None and seen.grace_left > 0:
        return _postpone(seen, seen.grace_left + 1, using)  # a message of it may still be on its way
    if step is not None:  # what the steps before it wrote stays, so the key is not free again
        return _goes_on(seen, operations.not_executed, step.not_executed(), "step not executed", "T10s", using)
    with transaction.atomic(using=using):
        if seen.deferred:
            due_now = 0  # the sweeper sends the message, or a worker comes by itself
            done = verdicts.not_executed_deferred(seen.scope, seen.id, seen.token, due_now, using)
        else:
            done = verdicts.not_executed(seen.scope, seen.id, seen.token, using)
        if done:
            events.note(seen.id, "not executed", "T10", using, actor="reconciler")
    if not done:
        return Outcome.OVERTAKEN
    announce_committed(signals.resolved, using, record=seen.id, outcome=Outcome.NOT_EXECUTED)
    return Outcome.NOT_EXECUTED


def _postpone(seen: Record, seconds: float, using: str) -> Outcome:
    assert seen.token is not None  # noqa: S101 - read with it
    done = verdicts.postpone(seen.scope, seen.id, seen.token, seconds, using)
    return Outcome.POSTPONED if done else Outcome.OVERTAKEN


def _inconclusive(seen: Record, verdict: Inconclusive, tries: int, using: str) -> Outcome:
    assert seen.token is not None  # noqa: S101 - read with it
    wait = backoff(tries) if verdict.retry_in is None else _seconds(verdict.retry_in)
    if verdicts.inconclusive(seen.scope, seen.id, seen.token, wait, conf.RECONCILE_TRIES, using):
        announce(signals.reconcile_failed, record=seen.id, reason=verdict.reason, using=using)
        return Outcome.INCONCLUSIVE
    with transaction.atomic(using=using):
        dead = verdicts.give_up(seen.scope, seen.id, seen.token, conf.RECONCILE_TRIES, using)
        if dead:
            events.note(seen.id, "dead letter", "T12", using, actor="reconciler", reason=verdict.reason)
    if not dead:
        return Outcome.OVERTAKEN
    logger.error("Reconciliation gave up on idempotency record %s: a person has to look.", seen.id)
    announce(signals.dead_lettered, record=seen.id, using=using)
    return Outcome.DEAD_LETTER


def _seconds(wait: timedelta | float) -> float:
    """Neither in the past nor beyond the databases' calendars, where the try could not be stored."""
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    return min(max(1.0, seconds), LONGEST_WAIT_SECONDS)
