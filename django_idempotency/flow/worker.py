"""Performing deferred work, and resuming operations whose process is gone."""

from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

from django.db import transaction

from django_idempotency import signals
from django_idempotency.conf import conf, policy
from django_idempotency.core.decisions import Call, Record
from django_idempotency.core.policy import LostLease, Transaction
from django_idempotency.core.states import Status
from django_idempotency.exceptions import LostFence, NotExecuted, OutcomeUnknown
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import doubt, finish
from django_idempotency.flow.heartbeat import beating
from django_idempotency.flow.messages import pick_up_seconds, send
from django_idempotency.flow.registry import get_operation, knows
from django_idempotency.flow.settle import Outcome, backoff
from django_idempotency.flow.steps import resume
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce, logger
from django_idempotency.store import attempts, claims, duties, events, records, verdicts
from django_idempotency.store.database import alias


def perform(record: UUID | str, using: str | None = None) -> Outcome:
    """What a worker does with a message: take the work up, unless somebody has it or it is done."""
    using = using or alias()
    row = _row(record, using)
    if row is None or not row.deferred:
        logger.warning("A message names %s, which is no deferred operation; it is dropped.", str(record)[:64])
        return Outcome.ABSENT
    if not _open_to_workers(row):
        return Outcome.OVERTAKEN
    if not knows(row.run_name, row.progress):
        return _left_to_another_worker(row, using)
    if row.status != Status.PENDING and row.attempts >= conf.ATTEMPTS:
        return _given_up(row, using)
    attempt = _picked_up(row, using) if row.status == Status.PENDING else _gone_on_with(row, using)
    return Outcome.OVERTAKEN if attempt is None else _performed(attempt, row.attempts)


def _open_to_workers(row: IdempotencyKey) -> bool:
    """Whether a worker may take it: what waits for a verdict about a step, and what has ended, may not."""
    if row.status in (Status.IN_PROGRESS, Status.UNKNOWN):
        return row.on_lost_lease == LostLease.RESUME
    return row.status == Status.PENDING


def _row(record: UUID | str, using: str) -> IdempotencyKey | None:
    try:
        wanted = UUID(str(record))
    except ValueError:
        return None
    return IdempotencyKey.objects.using(using).defer("response_body").filter(id=wanted).first()


def _picked_up(row: IdempotencyKey, using: str) -> Attempt | None:
    """D2: of two workers with one message one wins."""
    token = uuid4()
    if not attempts.pick_up(row.scope, row.id, token, using):
        return None
    return Attempt(call_of(row), token, using, repeat=row.attempts > 1)


def _gone_on_with(row: IdempotencyKey, using: str) -> Attempt | None:
    """T7: its worker is gone, or failed."""
    seen = records.find(row.scope, row.id, using)
    return None if seen is None else taken_over(seen, row, using, actor="worker")


def _left_to_another_worker(row: IdempotencyKey, using: str) -> Outcome:
    """This process has no such code, or older code: told again later, another one may."""
    wait = int(ELSEWHERE_SECONDS)
    duties.enqueued_again(row.scope, row.id, wait, using)
    if row.attempt_token is not None:
        verdicts.postpone(row.scope, row.id, row.attempt_token, wait, using)
    return Outcome.POSTPONED


def _given_up(row: IdempotencyKey, using: str) -> Outcome:
    seen = records.find(row.scope, row.id, using)
    return Outcome.OVERTAKEN if seen is None or seen.token is None else give_up(seen, seen.token, using)


def _performed(attempt: Attempt, tries: int) -> Outcome:
    try:
        go_on(attempt)
    except (LostFence, OutcomeUnknown) as error:
        return stopped(attempt, error, tries)
    except NotExecuted as error:
        return _again(attempt, error, tries)
    except Exception as error:  # noqa: BLE001 - whatever it failed with, it is taken up again later
        return failed(attempt, error, tries)
    if attempt.repeat:
        announce(signals.resolved, record=attempt.call.id, outcome=Outcome.LANDED, using=attempt.using)
    return Outcome.LANDED


def _again(attempt: Attempt, error: NotExecuted, tries: int) -> Outcome:
    """D5: nothing happened, so it waits once more, each time longer. In doubt, or at the cap: as any other failure."""
    call, code = attempt.call, type(error).__name__
    place, wait = (call.scope, call.id, attempt.token), int(backoff(tries))
    if attempt.in_doubt or not attempts.requeue(*place, code, conf.ATTEMPTS, wait, attempt.using):
        return failed(attempt, error, tries)
    announce(signals.released, call=call, code=code, using=attempt.using)
    return Outcome.NOT_EXECUTED


ELSEWHERE_SECONDS: Final = 300.0


def resume_one(scope: str, record: UUID, using: str) -> Outcome:
    """Go on with one operation, unless another process does, or this one's code cannot."""
    seen = records.find(scope, record, using)
    if seen is None or seen.status is not Status.UNKNOWN or not seen.resumable or seen.token is None:
        return Outcome.OVERTAKEN
    if seen.deferred:
        return _handed_on(seen, seen.token, using)
    row = IdempotencyKey.objects.using(using).get(scope=scope, id=record)
    if not knows(row.run_name, row.progress):
        done = verdicts.postpone(scope, record, seen.token, ELSEWHERE_SECONDS, using)  # for a worker with that code
        return Outcome.POSTPONED if done else Outcome.OVERTAKEN
    if row.attempts >= conf.ATTEMPTS:
        return give_up(seen, seen.token, using)
    attempt = taken_over(seen, row, using, actor="resumer")
    return Outcome.OVERTAKEN if attempt is None else _run(attempt, row.attempts)


def _handed_on(seen: Record, token: UUID, using: str) -> Outcome:
    """Long work is never done here: a worker is told once more."""
    if not verdicts.postpone(seen.scope, seen.id, token, pick_up_seconds(), using):
        return Outcome.OVERTAKEN
    send(seen.id)
    return Outcome.SENT


def taken_over(seen: Record, row: IdempotencyKey, using: str, *, actor: str) -> Attempt | None:
    """T7: a new attempt at the operation; None when somebody else was quicker."""
    token = uuid4()
    with transaction.atomic(using=using):
        if not claims.take_over(seen, token, row.lease_seconds, row.grace_seconds, using):
            return None
        events.note(seen.id, "taken over", "T7", using, actor=actor)
    call = call_of(row)
    announce(signals.taken_over, call=call, using=using)
    return Attempt(call, token, using, repeat=True)


def call_of(row: IdempotencyKey) -> Call:
    """The call as its record tells it. The lease lasts while the process lives, up to the operation's own limit."""
    chosen = policy(
        transaction=Transaction.LATE,
        lease=timedelta(seconds=row.lease_seconds),
        grace=timedelta(seconds=row.grace_seconds),
        heartbeat=get_operation(row.run_name).longest,
    )
    return Call(row.scope, row.key, row.fingerprint, chosen, principal=row.principal, operation=row.operation)


def go_on(attempt: Attempt) -> None:
    """Run the operation from where its record stands, and store its answer."""
    with beating(attempt):
        reply = resume(attempt)
    finish(attempt, lambda: (reply, reply))


def _run(attempt: Attempt, tries: int) -> Outcome:
    try:
        go_on(attempt)
    except (LostFence, OutcomeUnknown) as error:
        return stopped(attempt, error, tries)
    except Exception as error:  # noqa: BLE001 - whatever it failed with, it is taken up again later
        return failed(attempt, error, tries)
    announce(signals.resolved, record=attempt.call.id, outcome=Outcome.LANDED, using=attempt.using)
    return Outcome.LANDED


def stopped(attempt: Attempt, error: Exception, tries: int) -> Outcome:
    """The record is somebody else's; or it is ours, and the error is about another key that its work asked for."""
    ours = doubt(attempt, type(error).__name__)
    return failed(attempt, error, tries) if ours else Outcome.OVERTAKEN


def failed(attempt: Attempt, error: Exception, tries: int) -> Outcome:
    """T5, and not before some time has passed."""
    call, using = attempt.call, attempt.using
    logger.error("The operation of record %s failed.", call.id, exc_info=error)
    doubt(attempt, type(error).__name__)
    verdicts.postpone(call.scope, call.id, attempt.token, backoff(tries), using)
    announce(signals.resume_failed, record=call.id, reason=type(error).__name__, using=using)
    return Outcome.INCONCLUSIVE


def give_up(seen: Record, token: UUID, using: str) -> Outcome:
    """T12: it was tried too often."""
    with transaction.atomic(using=using):
        dead = verdicts.give_up(seen.scope, seen.id, token, 1, using)
        if dead:
            events.note(seen.id, "dead letter", "T12", using, actor="resumer", reason="attempts used up")
    if not dead:
        return Outcome.OVERTAKEN
    logger.error("The operation of idempotency record %s was tried too often: a person has to look.", seen.id)
    announce(signals.dead_lettered, record=seen.id, using=using)
    return Outcome.DEAD_LETTER
