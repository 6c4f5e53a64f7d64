"""Atomic mode: claim, work and stored response are one transaction, so that a crash leaves nothing behind."""

from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from django.db import Error

from django_idempotency import signals
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer, Execute, Exhaust, InFlight, Lapse, decide
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import OutcomeUnknown, StoreUnavailable
from django_idempotency.flow.attempt import Attempt, digest_of_namespace
from django_idempotency.flow.claim import Announcements, answer_from, carry_out, publish, tell
from django_idempotency.flow.completion import Completion, Uncertain
from django_idempotency.flow.finish import RefusedWhileTainted, read_back
from django_idempotency.flow.other_databases import watch_other_databases
from django_idempotency.signals import announce
from django_idempotency.store import attempts, claims, limits
from django_idempotency.store.continuity import Replaced, RolledBack
from django_idempotency.store.records import alias

T = TypeVar("T")


class _Beaten(Exception):
    """Another transaction stored the finished row first; this one rolls back."""


class _Unsettled(Exception):
    """What a leased attempt left behind has to be settled first, in a transaction that is not rolled back."""

    def __init__(self, decision: Lapse | Exhaust) -> None:
        self.decision = decision


def run_atomic(call: Call, work: Callable[[Attempt], tuple[T, Reply]], using: str | None = None) -> T | Answer:
    """Claim the key, run `work` and store its reply in one transaction (A1), or return what to answer instead."""
    using = using or alias()
    limits.inside_test_case(using)
    attempt = Attempt(call, uuid4(), using, digest_of_namespace())
    for remaining in reversed(range(limits.TRIES)):
        completion = Completion(attempt)
        try:
            outcome = _run_once(completion, work)
            break
        except _Beaten:
            continue  # the next look finds the row that won
        except _Unsettled as unsettled:
            _settle(unsettled.decision, attempt)
        except RefusedWhileTainted:  # the take-over rolled back as well
            doubtful = peek_alone(call, using)
            if doubtful is not None:
                outcome = doubtful
                break
        except Replaced as error:
            raise OutcomeUnknown("The transaction ended before its COMMIT.") from error
        except (Uncertain, StoreUnavailable, Error) as error:
            limits.drop_broken(using)
            if remaining and limits.may_repeat(error):
                continue
            if isinstance(error, Uncertain) and completion.commit_was_sent:
                outcome = read_back(attempt, error)
                break
            failure = _name_failure(error, completion)
            if failure is error:
                raise
            raise failure from error
    else:
        raise StoreUnavailable("The key changes hands faster than it can be claimed; send the same request again.")
    return tell(outcome, call, using) if isinstance(outcome, Answer) else outcome


def peek_alone(call: Call, using: str) -> Answer | None:
    """Return what a request would be answered now, a running one included; None if it would run."""
    with limits.limited(using, call.policy.claim_limit.total_seconds()):
        alone, record = claims.look(call, using)
    answer = answer_from(record, call)
    return answer if alone or answer is not None else _busy(call)


def _name_failure(error: Exception, completion: Completion) -> Exception:
    """Return what to raise if the store failed. Everything was rolled back, so nothing was executed.

    That is not known of a view that derived a downstream key: it may have called an external service.
    """
    failed = isinstance(error, Uncertain | RolledBack | StoreUnavailable)
    if not failed and not (isinstance(error, Error) and completion.was_lost(error)):
        return error
    failure = error if isinstance(error, StoreUnavailable) else StoreUnavailable()
    announce(signals.store_failed, using=completion.attempt.using, error=failure)
    if completion.attempt.derived:
        return OutcomeUnknown("The store failed after a downstream key was derived.")
    return failure


def _run_once(completion: Completion, work: Callable[[Attempt], tuple[T, Reply]]) -> T | Answer:
    attempt, call, using = completion.attempt, completion.attempt.call, completion.attempt.using
    news: Announcements = []
    with completion:
        owned = _claim(attempt, news)
        if isinstance(owned, Answer):
            completion.answer()
            return owned
        completion.begin_work()
        with watch_other_databases(call, using):
            result, reply = work(attempt)
        completion.store(result)
        if not _store(attempt, reply, owned=owned):
            raise RefusedWhileTainted if owned else _Beaten
    attempt.finished = True
    publish(news)
    if not owned:
        announce(signals.reserved, call=call, using=using)
    announce(signals.completed, call=call, reply=reply, seconds=attempt.seconds, using=using)
    return result


def _store(attempt: Attempt, reply: Reply, *, owned: bool) -> bool:
    derived = bool(attempt.derived)
    if owned:
        return attempts.complete(attempt.ref, attempt.token, reply, success=reply.status < 400, derived=derived)
    return claims.insert_finished(
        attempt.call, attempt.token, reply, attempt.using, namespace=attempt.namespace, derived=derived
    )


def _claim(attempt: Attempt, news: Announcements) -> Answer | bool:
    """Return an answer to give instead of running, or whether there is a record, which this attempt now owns."""
    call, using = attempt.call, attempt.using
    with limits.limited(using, attempt.limit):
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
        if not carry_out(decision, call, attempt.token, using, news):
            raise _Beaten
        attempt.repeat, attempt.namespace = True, decision.record.namespace
        return True


def _busy(call: Call) -> InFlight:
    return InFlight(None, max(1, round(call.policy.retry_hint.total_seconds())))


def _settle(decision: Lapse | Exhaust, attempt: Attempt) -> None:
    news: Announcements = []
    with limits.limited(attempt.using, attempt.limit):
        carry_out(decision, attempt.call, attempt.token, attempt.using, news)
    publish(news)
