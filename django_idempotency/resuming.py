"""Taking up operations whose process is gone and that nobody retried."""

from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

from django.db import transaction

from django_idempotency import signals
from django_idempotency.conf import conf, policy
from django_idempotency.core.decisions import Call, Record
from django_idempotency.core.policy import Transaction
from django_idempotency.core.states import Status
from django_idempotency.exceptions import LostFence, OutcomeUnknown
from django_idempotency.finishing import Attempt, doubt, finish
from django_idempotency.heartbeat import beating
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import knows, registered, resume
from django_idempotency.reconciliation import backoff
from django_idempotency.sending import pick_up_seconds, send
from django_idempotency.settling import Outcome
from django_idempotency.signals import announce, logger
from django_idempotency.store import claims, events, records, verdicts

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
        heartbeat=registered(row.run_name).longest,
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
