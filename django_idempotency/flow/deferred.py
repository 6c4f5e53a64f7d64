"""Long work: handed over in a transaction, taken up by a worker that was told nothing but a record's id.

The row is the outbox: a message that is lost is sent again, one that is early, late or doubled finds nothing to do.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from django.db import transaction

from django_idempotency.conf import policy
from django_idempotency.core.decisions import Call, Execute, Exhaust, Gone, Mismatch, Record, Replay, Restart, decide
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.core.keys import fitted
from django_idempotency.core.policy import LostLease, Transaction
from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import EndedWithoutResult, KeyExpired, KeyReused, LostFence
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import ROUNDS
from django_idempotency.flow.finish import completing, end
from django_idempotency.flow.messages import pick_up_seconds, send_on_commit
from django_idempotency.flow.registry import Operation, operation_of
from django_idempotency.store import attempts, claims, operations, records
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


def _call(scope: str, key: str, work: operations.Run) -> Call:
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


def _queued(call: Call, work: operations.Run, using: str) -> bool:
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


def work_of(wanted: Operation, arguments: Mapping[str, Any]) -> operations.Run:
    """The work as it stands in the record. Arguments that do not fit are an error here, not in the worker."""
    inspect.signature(wanted.function).bind(None, **arguments)
    return operations.Run(wanted.name, json.dumps(arguments, allow_nan=False), Progress(wanted.version).dump(), 0)
