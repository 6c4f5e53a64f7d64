"""How an attempt begins: it claims the key, or learns what to answer instead."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID, uuid4

from django.db import transaction

from django_idempotency import signals
from django_idempotency.core.audit import Kind
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import (
    Accepted,
    Answer,
    Execute,
    Exhaust,
    Gone,
    InDoubt,
    InFlight,
    Lapse,
    Mismatch,
    Move,
    Record,
    Replay,
    Restart,
    TakeOver,
    TooEarly,
    decide,
)
from django_idempotency.core.effects import Effect
from django_idempotency.core.links import docs_url
from django_idempotency.core.problems import EXHAUSTED, members_of, render
from django_idempotency.core.refs import Ref
from django_idempotency.core.states import Status
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt, Lease, digest_of_namespace
from django_idempotency.flow.mismatches import note_mismatch
from django_idempotency.flow.registry import knows
from django_idempotency.flow.settle import tell_dead_letter
from django_idempotency.signals import announce, logger
from django_idempotency.store import claims, events, jobs, limits, operations, records
from django_idempotency.store.records import alias

ROUNDS: Final = 8  # each lost round is a race that another request won

# Signals to send once the change is committed and no deadline runs any more: receivers may be slow.
Announcements: TypeAlias = list[Callable[[], object]]


def begin(call: Call, using: str | None = None) -> Attempt | Answer:
    """Claim the key, or return what to answer instead. Commits on its own, before anything runs."""
    using = using or alias()
    nested = limits.inside_test_case(using)
    token = uuid4()
    namespace = digest_of_namespace()
    limit = call.policy.claim_limit.total_seconds()
    news: Announcements = []

    def attempt(left: float) -> Attempt | Answer:
        return _claim(call, token, namespace, using, None if nested else left, news)

    try:
        if nested:
            with transaction.atomic(using=using):
                outcome = attempt(limit)
        else:
            outcome = limits.repeated(attempt, using, limit)
    except StoreUnavailable as error:
        news.append(partial(announce, signals.store_failed, using=using, error=error))
        raise
    finally:
        publish(news)
    return outcome if isinstance(outcome, Attempt) else tell(outcome, call, using)


def peek(call: Call, using: str | None = None) -> Answer | None:
    """Return what a request would be answered now; None if it would run. Claims nothing."""
    using = using or alias()
    with limits.limited(using, call.policy.claim_limit.total_seconds()):
        record = records.find(call.ref(using))
    return answer_from(record, call)


def has_record(call: Call, using: str) -> bool:
    """True if there is a record of this call."""
    with limits.limited(using, call.policy.claim_limit.total_seconds()):
        return records.find(call.ref(using)) is not None


def answer_from(record: Record | None, call: Call) -> Answer | None:
    """Return what a record means for a caller that does not claim it; None if the call would run."""
    decision = decide(record, call)
    if isinstance(decision, TakeOver | Lapse):
        return InDoubt(decision.record, dead=False)
    return None if isinstance(decision, Execute | Restart | Exhaust) else decision


def _claim(
    call: Call, token: UUID, namespace: str, using: str, seconds: float | None, news: Announcements
) -> Attempt | Answer:
    insert = partial(claims.insert_claim, call, token, using, seconds, namespace=namespace)
    record = insert()
    for _ in range(ROUNDS):
        if record is None:
            news.append(partial(announce, signals.reserved, call=call, using=using))
            return Attempt(call, token, using, namespace)
        if record.token == token:
            return Attempt(
                call, token, using, record.namespace, record.attempts > 1, record.attempts, age=record.age or 0.0
            )
        decision = decide(record, call)
        if isinstance(decision, TakeOver) and not _has_code_for(decision.record.ref(using)):
            return InDoubt(decision.record, dead=False)
        if isinstance(decision, Answer):
            return decision
        if carry_out(decision, call, token, using, news):
            number, age = (1, 0.0) if record.retention_over else (record.attempts + 1, record.age or 0.0)
            return Attempt(call, token, using, record.namespace, repeat=True, number=number, age=age)
        record = records.find(call.ref(using)) or insert()
    raise StoreUnavailable("The key changes hands faster than it can be claimed; send the same request again.")


def _has_code_for(ref: Ref) -> bool:
    """True unless newer code began the operation: during a deployment, older code leaves it to newer code."""
    stored = operations.read_operation(ref)
    return stored is None or stored.name == "" or knows(stored.name, stored.progress)


def carry_out(decision: Move, call: Call, token: UUID, using: str, news: Announcements) -> bool:
    """Make the change that was decided. True if this token now owns the record; else it has to be read again."""
    match decision:
        case Restart(record) if record.retention_over:
            won, signal = claims.renew(call, token, using), signals.renewed
        case Restart(record):
            won, signal = claims.retry(call, record.token, token, using), signals.retried
        case TakeOver(record):
            won, signal = _take_over(record, call, token, using), signals.taken_over
            if won and record.status is Status.IN_PROGRESS:
                news.append(partial(_warn_of_lapse, record.id, call.title))
        case Lapse(record):
            ref = record.ref(using)
            if _lapse(ref):
                news.append(partial(_tell_lapse, ref, call.title))
            return False
        case Exhaust(record):
            _exhaust(record.ref(using), call, news)
            return False
        case Execute():
            raise AssertionError(decision)  # pragma: no cover - there is no record to change
    if won:
        news.append(partial(announce, signal, call=call, using=using))
    return won


def _exhaust(ref: Ref, call: Call, news: Announcements) -> None:
    """End a key whose attempts are used up: as failed if none had an effect, else as a dead letter."""
    reply, cap = render(call.policy.profile, EXHAUSTED, 500, **members_of(Effect.NONE)), call.policy.attempts
    if jobs.exhaust(ref, cap, reply):
        return
    reason = "attempts used up, and one of them may have had an effect"
    if events.audit(partial(jobs.give_up_retrying, ref, cap), ref, Kind.DEAD_LETTER, actor="request", reason=reason):
        news.append(partial(tell_dead_letter, ref, reason))


def publish(news: Announcements) -> None:
    """Send what was committed."""
    for each in news:
        each()


def lapse(ref: Ref) -> bool:
    """Make the outcome of an expired lease unknown (T6). The sweeper logs a line for many, and each below INFO."""
    done = _lapse(ref)
    if done:
        _tell_lapse(ref, level=logging.DEBUG)
    return done


def _lapse(ref: Ref) -> bool:
    return events.audit(partial(jobs.mark_lapsed, ref), ref, Kind.LEASE_EXPIRED)


def _warn_of_lapse(record: UUID, title: str, level: int = logging.WARNING) -> None:
    text = "The lease of %s expired: its worker crashed or took too long. Idempotency record %s. See %s"
    logger.log(level, text, title, record, docs_url("how-to/runbooks", "idempotencyleasesexpire"))


def _tell_lapse(ref: Ref, title: str = "an operation", level: int = logging.WARNING) -> None:
    _warn_of_lapse(ref.id, title, level)
    announce(signals.lease_lapsed, record=ref.id, using=ref.using)


def _take_over(record: Record, call: Call, token: UUID, using: str) -> bool:
    lease, ref = Lease.of(call.policy), record.ref(using)
    change = partial(claims.take_over, ref, record.token, token, lease.seconds, lease.grace)
    return events.audit(change, ref, Kind.TAKEN_OVER, details={"attempt": record.attempts + 1})


_SIGNALS: Final = {
    Replay: signals.replayed,
    InFlight: signals.in_flight,
    Accepted: signals.in_flight,
    Mismatch: signals.misused,
    InDoubt: signals.in_doubt,
    TooEarly: signals.in_flight,
    Gone: signals.refused_expired,
}


def tell(answer: Answer, call: Call, using: str) -> Answer:
    """Send the signal of an answer, and return the answer: of a mismatch with what is found out about it."""
    if isinstance(answer, Mismatch):
        answer = note_mismatch(answer, call, using)
    announce(_SIGNALS[type(answer)], call=call, using=using)
    return answer
