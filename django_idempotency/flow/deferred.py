"""Handing work over to a worker.

The record is the outbox: a message carries nothing but its id. A lost message is sent again; one that arrives early,
late or twice finds nothing to do.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias
from uuid import uuid4

from django.db import transaction

from django_idempotency.conf import policy
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Execute, Exhaust, Gone, Mismatch, Record, Replay, Restart, decide
from django_idempotency.core.fingerprint import RequestParts
from django_idempotency.core.policy import Mode, Transaction
from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import LostLease, Status
from django_idempotency.exceptions import EndedWithoutResult, KeyExpired, KeyReused, LostFence
from django_idempotency.flow.attempt import Attempt, digest_of_namespace
from django_idempotency.flow.claim import ROUNDS
from django_idempotency.flow.finish import Ending, finish
from django_idempotency.flow.messages import pick_up_seconds, send_on_commit
from django_idempotency.flow.registry import Operation, operation_of
from django_idempotency.store import attempts, claims, records
from django_idempotency.store.operations import StoredOperation
from django_idempotency.store.records import alias

Deferral: TypeAlias = tuple[StoredOperation, int, bool]  # the work, when to send it again, if writes go with it
Write: TypeAlias = Callable[[], Mapping[str, Any] | None]


def defer(
    attempt: Attempt, function: Callable[..., Reply], arguments: Mapping[str, Any], write: Write | None = None
) -> None:
    """Commit the domain writes of `write` and the work for a worker in one transaction (D0), then send the message.

    What `write` returns is added to the arguments. It may run a second time after a deadlock.
    """
    wanted = operation_of(function)
    wait = pick_up_seconds()  # may import Celery, which takes longer than the transaction's limit allows

    def work() -> tuple[None, Deferral]:
        added = write() if write is not None else None
        return None, (describe_work(wanted, {**arguments, **(added or {})}), wait, write is not None)

    finish(attempt, work, rerun=True, ending=_AS_DEFERRED)


def _write_deferral(attempt: Attempt, deferral: Deferral) -> None:
    work, wait, wrote = deferral
    derived = bool(attempt.derived)
    if not attempts.hand_over(attempt.ref, attempt.token, work, wait, wrote=wrote, derived=derived):
        raise LostFence


def _holds_deferral(attempt: Attempt, record: Record) -> bool:
    """True even after a worker has picked the work up and written its own token."""
    return record.deferred


def _send_message(attempt: Attempt, deferral: object) -> None:
    send_on_commit(attempt.call.id, attempt.using)


_AS_DEFERRED: Final = Ending(_write_deferral, _holds_deferral, _send_message)


def enqueue(scope: str, key: str, function: Callable[..., Reply], /, **arguments: Any) -> str:
    """Queue work for a worker without a view (D1), once per key, and return the id of its record.

    In an open transaction the work belongs to that transaction: a rollback takes it back.
    """
    wanted, using = operation_of(function), alias()
    work = describe_work(wanted, arguments)
    chosen = policy(
        mode=Mode.LEASED,
        transaction=Transaction.LATE,
        on_lost_lease=LostLease.RESUME,
        attempts_span=timedelta(0),
    )
    parts = RequestParts("ENQUEUE", work.name, "", "application/json", work.arguments.encode())
    call = Call.outside_http("enqueue", scope, key, work.name, parts, chosen)
    with transaction.atomic(using=using):
        if _queue(call, work, using):
            send_on_commit(call.id, using)
    return str(call.id)


def _queue(call: Call, work: StoredOperation, using: str) -> bool:
    """True if work was queued; False if the same work is already done, running or waiting."""
    token, wait, namespace = uuid4(), pick_up_seconds(), digest_of_namespace()
    for _ in range(ROUNDS):
        if claims.accept(call, token, work, wait, using, namespace=namespace):
            return True
        decision = decide(records.find(call.ref(using)), call)
        match decision:
            case Mismatch(old):
                raise KeyReused(effect=old.effect)
            case Gone(old):
                raise KeyExpired(
                    f"{KeyExpired.ADVICE[old.effect]} The key belonged to record {old.id}.", effect=old.effect
                )
            case Exhaust(old) | Replay(old) if old.status is not Status.COMPLETED:
                raise EndedWithoutResult(f"{EndedWithoutResult.__doc__} The record is {old.id}.")
            case Restart(old):
                if _claim_again(old, call, token, using):
                    return attempts.hand_over(call.ref(using), token, work, wait)
            case Execute():
                continue
            case _:
                return False
    return False


def _claim_again(record: Record, call: Call, token: Any, using: str) -> bool:
    if record.retention_over:
        return claims.renew(call, token, using)
    return claims.retry(call, record.token, token, using)


def describe_work(wanted: Operation, arguments: Mapping[str, Any]) -> StoredOperation:
    """Return the work as the record stores it. Arguments that do not fit are an error here, not in the worker."""
    inspect.signature(wanted.function).bind(None, **arguments)
    return StoredOperation(wanted.name, wanted.dump_arguments(arguments), Progress(wanted.version).dump(), steps_done=0)
