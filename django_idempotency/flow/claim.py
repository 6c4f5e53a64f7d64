"""How an attempt begins: the key is claimed, or there is an answer to give instead."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID, uuid4

from django.db import transaction

from django_idempotency import signals
from django_idempotency.core.decisions import (
    Accepted,
    Answer,
    Call,
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
    decide,
)
from django_idempotency.core.problems import EXHAUSTED, render
from django_idempotency.core.states import Status
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.registry import knows
from django_idempotency.signals import announce, logger, security
from django_idempotency.store import claims, duties, events, limits, operations, records
from django_idempotency.store.database import alias

ROUNDS: Final = 8  # each round lost is a race that somebody else won

# What to say once it is committed and no deadline runs any more: receivers may be slow.
News: TypeAlias = list[Callable[[], None]]


def begin(call: Call, using: str | None = None) -> Attempt | Answer:
    """Claim the key, or say what to answer instead. Commits on its own, before anything runs."""
    using = using or alias()
    nested = limits.inside_test_case(using)
    token = uuid4()
    limit = call.policy.claim_limit.total_seconds()
    news: News = []

    def attempt(left: float) -> Attempt | Answer:
        return _claim(call, token, using, None if nested else left, news)

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
    if not isinstance(outcome, Attempt):
        tell(outcome, call, using)
    return outcome


def peek(call: Call, using: str | None = None) -> Answer | None:
    """What the record says now, without claiming it; None when it would run."""
    using = using or alias()
    with limits.limited(using, call.policy.claim_limit.total_seconds()):
        record = records.find(call.scope, call.id, using)
    return seen(record, call)


def seen(record: Record | None, call: Call) -> Answer | None:
    """The answer that a record is, for who does not claim it; None when it would run."""
    decision = decide(record, call)
    if isinstance(decision, TakeOver | Lapse):
        return InDoubt(decision.record, dead=False)
    return None if isinstance(decision, Execute | Restart | Exhaust) else decision


def _claim(call: Call, token: UUID, using: str, seconds: float | None, news: News) -> Attempt | Answer:
    record = claims.claim(call, token, using, seconds)
    for _ in range(ROUNDS):
        if record is None or record.token == token:
            if record is None:
                news.append(partial(announce, signals.reserved, call=call, using=using))
            return Attempt(call, token, using, repeat=record is not None and record.attempts > 1)
        decision = decide(record, call)
        if isinstance(decision, TakeOver) and not _has_code_for(decision.record, using):
            return InDoubt(decision.record, dead=False)
        if isinstance(decision, Answer):
            return decision
        if move(decision, call, token, using, news):
            return Attempt(call, token, using, repeat=True)
        record = records.find(call.scope, call.id, using) or claims.claim(call, token, using, seconds)
    raise StoreUnavailable("The key changes hands faster than it can be claimed; send the same request again.")


def _has_code_for(record: Record, using: str) -> bool:
    """Older code, which meets newer work during a deployment, leaves it to newer code."""
    work = operations.read(record.scope, record.id, using)
    return work is None or work.name == "" or knows(work.name, work.progress)


def move(decision: Move, call: Call, token: UUID, using: str, news: News) -> bool:
    """Carry a move out. True when this token owns the record now; otherwise it is read and decided again."""
    match decision:
        case Restart(record) if record.retention_over:
            won, signal = claims.renew(call, token, using), signals.renewed
        case Restart(record):
            won, signal = claims.retry(call, record.token, token, using), signals.retried
        case TakeOver(record):
            won, signal = _take_over(record, call, token, using), signals.taken_over
            if won and record.status is Status.IN_PROGRESS:
                news.append(partial(_warn_of_lapse, record.id))
        case Lapse(record):
            if _lapse(record.scope, record.id, using):
                news.append(partial(_report_lapse, record.id, using))
            return False
        case Exhaust(record):
            _exhaust(record, call, using)
            return False
        case Execute():
            raise AssertionError(decision)  # pragma: no cover - there is no record to move
    if won:
        news.append(partial(announce, signal, call=call, using=using))
    return won


def publish(news: News) -> None:
    """Say what was committed."""
    for each in news:
        each()


def lapse(scope: str, record: UUID, using: str) -> bool:
    """T6: nobody knows what became of the attempt. Loud, because each one is a crash or a lease too short."""
    done = _lapse(scope, record, using)
    if done:
        _report_lapse(record, using)
    return done


def _lapse(scope: str, record: UUID, using: str) -> bool:
    with transaction.atomic(using=using):
        if not duties.lapse(scope, record, using):
            return False
        events.note(record, "lease over", "T6", using)
    return True


def _warn_of_lapse(record: UUID) -> None:
    logger.warning("The lease of idempotency record %s ran out: its worker crashed or took too long.", record)


def _report_lapse(record: UUID, using: str) -> None:
    _warn_of_lapse(record)
    announce(signals.lease_lapsed, record=record, using=using)


def _take_over(record: Record, call: Call, token: UUID, using: str) -> bool:
    lease, grace = (int(each.total_seconds()) for each in (call.policy.lease, call.policy.grace))
    with transaction.atomic(using=using):
        if not claims.take_over(record, token, lease, grace, using):
            return False
        events.note(record.id, "taken over", "T7", using)
    return True


def _exhaust(record: Record, call: Call, using: str) -> None:
    reply = render(call.policy.profile, EXHAUSTED, 500, safe_new_key=True)
    duties.exhaust(record.scope, record.id, call.policy.attempts, reply, using)


_SIGNALS: Final = {
    Replay: signals.replayed,
    InFlight: signals.in_flight,
    Accepted: signals.in_flight,
    Mismatch: signals.misused,
    InDoubt: signals.in_doubt,
    Gone: signals.refused_expired,
}


def tell(answer: Answer, call: Call, using: str) -> None:
    if isinstance(answer, Mismatch):
        security.warning(
            "An idempotency key was sent with another request: record %s, operation %r, principal %r.",
            call.id,
            call.operation,
            call.principal,
        )
    announce(_SIGNALS[type(answer)], call=call, using=using)
