"""Long work: handed over in a transaction, taken up by a worker that was told nothing but a record's id.

The row is the outbox: a message that is lost is sent again, one that is early, late or doubled finds nothing to do.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from django.db import transaction

from django_idempotency import signals
from django_idempotency.claiming import ROUNDS
from django_idempotency.conf import conf, policy
from django_idempotency.core.decisions import Call, Execute, Exhaust, Gone, Mismatch, Record, Replay, Restart, decide
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.core.keys import fitted
from django_idempotency.core.policy import LostLease, Transaction
from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import (
    EndedWithoutResult,
    KeyExpired,
    KeyReused,
    LostFence,
    NotExecuted,
    OutcomeUnknown,
)
from django_idempotency.finishing import Attempt, completing, end
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Operation, knows, operation_of
from django_idempotency.reconciliation import backoff
from django_idempotency.resuming import ELSEWHERE_SECONDS, call_of, failed, give_up, go_on, stopped, taken_over
from django_idempotency.sending import pick_up_seconds, send_on_commit
from django_idempotency.settling import Outcome
from django_idempotency.signals import announce, logger
from django_idempotency.store import attempts, claims, duties, records, steps, verdicts
from django_idempotency.store.database import alias

Write: TypeAlias = Callable[[], Mapping[str, Any] | None]


def defer(
    attempt: Attempt, function: Callable[..., Reply], arguments: Mapping[str, Any], write: Write | None = None
) -> None:
    """D0: the domain writes of `write` and the work for a worker, in one transaction; then the message.

    What `write` returns is added to the arguments. It may run a second time after a deadlock.
    """
    wanted, using, call = operation_of(function), attempt.using, attempt.call
    wait = pick_up_seconds()  # may import Celery, which takes longer than the transaction's limit allows

    def once() -> None:
        with completing(attempt) as begins:
            work = work_of(wanted, {**arguments, **((write and write()) or {})})
            begins(None)
            if not attempts.defer(call.scope, call.id, attempt.token, work, wait, using):
                raise LostFence

    end(attempt, once, _accepted, rerun=True)
    send_on_commit(call.id, using)


def enqueue(scope: str, key: str, function: Callable[..., Reply], /, **arguments: Any) -> str:
    """D1: work for a worker, without a view; the id of its record. Once for this key, however often it is asked for.

    In an open transaction it belongs to that transaction: rolled back, it was never asked for.
    """
    wanted, using = operation_of(function), alias()
    work = work_of(wanted, arguments)
    call = _call(scope, key, work)
    with transaction.atomic(using=using):
        if _queued(call, work, using):
            send_on_commit(call.id, using)
    return str(call.id)


def _call(scope: str, key: str, work: steps.Run) -> Call:
    chosen = policy(transaction=Transaction.LATE, on_lost_lease=LostLease.RESUME)
    parts = RequestParts("ENQUEUE", work.name, "", "application/json", work.arguments.encode())
    return Call(
        scope=fitted("scope", f"enqueue:{scope}"),  # apart from those of requests and of `once`
        key=fitted("key", key),
        fingerprint=seal(parts, chosen.fingerprint),
        policy=chosen,
        operation=work.name,
        parts=parts if chosen.fingerprint.secrets else None,
    )


def _queued(call: Call, work: steps.Run, using: str) -> bool:
    """Whether there was no such work, or what there was is over; False where it is done, or will be."""
    token, wait = uuid4(), pick_up_seconds()
    for _ in range(ROUNDS):
        if claims.accept(call, token, work, wait, using):
            return True
        decision = decide(records.find(call.scope, call.id, using), call)
        match decision:
            case Mismatch():
                raise KeyReused
            case Gone(old):
                raise KeyExpired(f"{KeyExpired.__doc__} It belonged to record {old.id}.")
            case Exhaust(old) | Replay(old) if old.status is not Status.COMPLETED:
                raise EndedWithoutResult(f"{EndedWithoutResult.__doc__} It is record {old.id}.")
            case Restart(record):
                again = claims.renew if record.retention_over else partial(claims.retry, read_token=record.token)
                if again(call=call, token=token, using=using):
                    return attempts.defer(call.scope, call.id, token, work, wait, using)
            case Execute():
                continue
            case _:
                return False
    return False


def _accepted(attempt: Attempt, record: Record) -> bool:
    """A worker may have it by now, and have put its own token in."""
    return record.deferred


def work_of(wanted: Operation, arguments: Mapping[str, Any]) -> steps.Run:
    """The work as it stands in the record. Arguments that do not fit are an error here, not in the worker."""
    inspect.signature(wanted.function).bind(None, **arguments)
    return steps.Run(wanted.name, json.dumps(arguments, allow_nan=False), Progress(wanted.version).dump(), 0)


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
