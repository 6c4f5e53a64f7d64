"""Atomic mode: claim, work and finished row are one transaction, so that a crash leaves nothing behind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from uuid import uuid4

from django.db import Error

from django_idempotency import signals
from django_idempotency.core.decisions import Answer, Call, Execute, Exhaust, InFlight, Lapse, decide
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import News, move, publish, seen, tell
from django_idempotency.flow.finish import Uncertain, completing, read_back
from django_idempotency.signals import announce
from django_idempotency.store import attempts, claims, limits
from django_idempotency.store.database import alias

T = TypeVar("T")


class _Beaten(Exception):
    """Another transaction stored the finished row first; this one rolls back."""


class _RefusedInDoubt(Exception):
    """A refusal while an earlier attempt is in doubt proves nothing; the take-over rolls back with it."""


class _Unsettled(Exception):
    """What a leased attempt left behind has to be settled first, in a transaction that is not rolled back."""

    def __init__(self, decision: Lapse | Exhaust) -> None:
        self.decision = decision


def run_atomic(call: Call, work: Callable[[Attempt], tuple[T, Reply]], using: str | None = None) -> T | Answer:
    """A1: claim, work and finished row in one transaction; a crash leaves nothing."""
    using = using or alias()
    limits.inside_test_case(using)
    attempt = Attempt(call, uuid4(), using)
    for remaining in reversed(range(limits.TRIES)):
        try:
            outcome = _run_atomic_once(attempt, work)
            break
        except _Beaten:
            continue  # the next look finds the row that won
        except _Unsettled as unsettled:
            _settle(unsettled.decision, attempt)
        except _RefusedInDoubt:
            doubtful = peek(call, using)
            if doubtful is not None:
                outcome = doubtful
                break
        except Uncertain as uncertain:
            if remaining and limits.may_repeat(uncertain):
                continue
            outcome = read_back(attempt, uncertain)
            break
        except (StoreUnavailable, Error) as error:
            limits.drop_broken(using)
            if remaining and limits.may_repeat(error):
                continue
            if isinstance(error, StoreUnavailable):
                announce(signals.store_failed, using=using, error=error)
            raise
    else:
        raise StoreUnavailable("The key changes hands faster than it can be claimed; send the same request again.")
    if isinstance(outcome, Answer):
        tell(outcome, call, using)
    return outcome


def _run_atomic_once(attempt: Attempt, work: Callable[[Attempt], tuple[T, Reply]]) -> T | Answer:
    call, using = attempt.call, attempt.using
    news: News = []
    with _opened(attempt) as begins:
        owned = _claim(attempt, news)
        if isinstance(owned, Answer):
            return owned
        result, reply = work(attempt)
        begins(result)
        if not owned and not claims.insert_finished(call, attempt.token, reply, using):
            raise _Beaten
        if owned and not attempts.complete(call.scope, call.id, attempt.token, reply, reply.status < 400, using):
            raise _RefusedInDoubt
    attempt.finished = True
    publish(news)
    if not owned:
        announce(signals.reserved, call=call, using=using)
    announce(signals.completed, call=call, reply=reply, seconds=attempt.seconds, using=using)
    return result


@contextmanager
def _opened(attempt: Attempt) -> Iterator[Callable[[object], None]]:
    """The transaction; that there was none to begin is the store's failing, and nothing was done."""
    with limits.limited(attempt.using, attempt.call.policy.claim_limit.total_seconds()):
        pass  # connects, and asks whether the connection is well, within the limit
    began = False
    try:
        with completing(attempt) as begins:
            began = True
            yield begins
    except Error as error:
        if began:
            raise
        raise StoreUnavailable from error


def _claim(attempt: Attempt, news: News) -> Answer | bool:
    """An answer to give instead of running, or whether there is a record already, now owned by this attempt."""
    call, using = attempt.call, attempt.using
    with limits.limited(using, call.policy.claim_limit.total_seconds()):
        alone, record = claims.look(call, using)
        decision = decide(record, call)
        if isinstance(decision, Answer):
            return decision
        if not alone:
            return _busy(call)
        match decision:
            case Execute():
                return False
            case Lapse() | Exhaust():
                raise _Unsettled(decision)
        if not move(decision, call, attempt.token, using, news):
            raise _Beaten
        attempt.repeat = True
        return True


def peek(call: Call, using: str) -> Answer | None:
    """What the record says now, or that somebody is at it; None when it would run."""
    with limits.limited(using, call.policy.claim_limit.total_seconds()):
        alone, record = claims.look(call, using)
    answer = seen(record, call)
    return answer if alone or answer is not None else _busy(call)


def _busy(call: Call) -> InFlight:
    return InFlight(None, max(1, round(call.policy.retry_hint.total_seconds())))


def _settle(decision: Lapse | Exhaust, attempt: Attempt) -> None:
    news: News = []
    with limits.limited(attempt.using, attempt.call.policy.claim_limit.total_seconds()):
        move(decision, attempt.call, attempt.token, attempt.using, news)
    publish(news)
