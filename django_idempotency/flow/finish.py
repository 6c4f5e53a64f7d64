"""How an attempt ends: its response is stored, or nothing is proven to have happened, or the outcome is unknown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from django.db import Error

from django_idempotency import signals
from django_idempotency.core.audit import Kind
from django_idempotency.core.decisions import Record
from django_idempotency.core.links import docs_url
from django_idempotency.core.policy import OnError, Transaction
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import (
    AlreadyFinished,
    InsideTransaction,
    LostFence,
    NotAResponse,
    NotExecuted,
    OutcomeUnknown,
    StoreUnavailable,
)
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.completion import Completion, Uncertain, is_nested_durable
from django_idempotency.flow.failures import collect_evidence, named_record
from django_idempotency.signals import announce, logger
from django_idempotency.store import attempts, events, limits, records
from django_idempotency.store.continuity import Replaced, RolledBack

T = TypeVar("T")
R = TypeVar("R")


class RefusedWhileTainted(Exception):
    """An error response proves nothing while an earlier attempt may still land. Its writes roll back."""


@dataclass(frozen=True, slots=True)
class Ending(Generic[R]):
    """One way in which an attempt can end in a transaction with the project's writes."""

    write: Callable[[Attempt, R], None]  # the guarded statement; raises if the attempt may not end so
    holds: Callable[[Attempt, Record], bool]  # True if the record shows that the COMMIT went through
    tell: Callable[[Attempt, R], None]


def _write_response(attempt: Attempt, reply: Reply) -> None:
    """Store the response (T3). An operation whose steps are all done has its proof in the record, even of an error."""
    certain = reply.status < 400 or attempt.settled
    if not attempts.complete(attempt.ref, attempt.token, reply, success=certain, derived=bool(attempt.derived)):
        raise LostFence if certain or not _is_still_mine(attempt) else RefusedWhileTainted


def _is_still_mine(attempt: Attempt) -> bool:
    record = records.find(attempt.ref)
    return record is not None and record.token == attempt.token and record.status in Status.OWNED


def holds_response(attempt: Attempt, record: Record) -> bool:
    """True if the stored response is this attempt's: a verdict that completes the record removes the token."""
    return record.token == attempt.token and record.status is Status.COMPLETED


def _tell_completed(attempt: Attempt, reply: Reply) -> None:
    announce(signals.completed, call=attempt.call, reply=reply, seconds=attempt.seconds, using=attempt.using)


WITH_RESPONSE: Final = Ending(_write_response, holds_response, _tell_completed)


def finish(
    attempt: Attempt,
    work: Callable[[], tuple[T, Any]],
    *,
    rerun: bool = False,
    ending: Ending[Any] = WITH_RESPONSE,
) -> T:
    """Run `work`, which makes the domain writes, and end the attempt in the same transaction.

    `work` returns what to return and what to store. `rerun` says that it has no effect outside this database, so that
    it may run again after a deadlock, or on a new connection if the old one was lost before the COMMIT. LostFence means
    that everything was rolled back.
    """
    _check_unfinished(attempt)
    for remaining in reversed(range(limits.TRIES)):
        completion = Completion(attempt)
        try:
            with completion:
                completion.begin_work()
                result, stored = work() if remaining == limits.TRIES - 1 else _repeat(attempt, work)
                completion.store(result)
                ending.write(attempt, stored)
            break
        except RefusedWhileTainted:
            doubt(attempt, "refused_while_tainted")
            raise OutcomeUnknown from None
        except LostFence:
            if completion.state is not Completion.State.WORKING:  # else `work` raised it, about another key
                tell_fence_lost(attempt)
            raise
        except (Uncertain, Replaced, StoreUnavailable, Error) as error:
            if rerun and remaining and completion.may_run_again(error):
                continue
            if isinstance(error, RolledBack | Replaced):
                doubt(attempt, "transaction_lost", error)
                raise OutcomeUnknown("The transaction ended before its COMMIT.") from error
            if rerun and not isinstance(error, Uncertain) and completion.was_lost(error):
                doubt(attempt, "store_lost", error)
                raise OutcomeUnknown("The database could not be reached to store the result.") from error
            if not isinstance(error, Uncertain):
                raise
            result = read_back(attempt, error, ending.holds)
            break
    attempt.finished = True
    ending.tell(attempt, stored)
    return result


def _repeat(attempt: Attempt, work: Callable[[], T]) -> T:
    try:
        return work()
    except Exception as error:
        attempt.failed_again = error
        raise


def _check_unfinished(attempt: Attempt) -> None:
    if attempt.finished:
        raise AlreadyFinished
    try:
        limits.inside_test_case(attempt.using)
    except InsideTransaction:
        raise InsideTransaction(
            "A response cannot be stored inside an open transaction: a rollback would forget it. "
            "Move the call out of `atomic()`, and leave autocommit on."
        ) from None
    if attempt.in_doubt is not None:  # the operation raised and the view continued: no response settles the step
        doubt(attempt, "step_in_doubt")
        raise OutcomeUnknown(f"The outcome of the step {attempt.in_doubt!r} is unknown: no response is stored.")


def read_back(attempt: Attempt, uncertain: Uncertain, holds: Callable[[Attempt, Record], bool] = holds_response) -> Any:
    """Find out whether an interrupted COMMIT succeeded.

    Marking the record in doubt blocks until the COMMIT is resolved, and matches no row if it went through.
    """
    try:
        limits.drop_broken(attempt.using)
        if not _mark_doubt(attempt, "completion_lost", uncertain.__cause__):
            record = records.find(attempt.ref)
            if record is not None and holds(attempt, record):
                return uncertain.result
    except (StoreUnavailable, Error):
        logger.exception("Idempotency record %s could not be read back; its lease expires.", attempt.call.id)
    raise OutcomeUnknown from uncertain


def tell_fence_lost(attempt: Attempt) -> None:
    """Report that another attempt owns the record now."""
    logger.error(
        "An attempt of %s lost its lease of %s: its writes were rolled back. Idempotency record %s. See %s",
        attempt.call.title,
        attempt.call.policy.lease,
        attempt.call.id,
        docs_url("how-to/runbooks", "idempotencyleaselost"),
    )
    announce(signals.fence_lost, call=attempt.call, using=attempt.using)


def fail(attempt: Attempt, error: BaseException, *, proven: bool | None = None) -> bool:
    """End an attempt with an exception that is not a response.

    True if nothing happened (T4); False if the outcome is unknown (T5). `proven` says what `proves_nothing_happened`
    returned, if the caller has asked.
    """
    policy = attempt.call.policy
    released = policy.on_error is OnError.RELEASE and isinstance(error, Exception)
    released |= is_mistake(error, attempt) and not attempt.derived
    if proven is None:
        proven = proves_nothing_happened(error, attempt)
    if (released or proven) and release(attempt, type(error).__name__, proven=proven):
        return True
    doubt(attempt, type(error).__name__, error)
    return False


def proves_nothing_happened(error: BaseException, attempt: Attempt, *, of_step: bool = False) -> bool:
    """True if the work raised NotExecuted, or what the policy's `not_executed` names, about its own key.

    After the view derived a downstream key, only the policy counts: the service may have been called since. With
    `of_step`, the function of one step raised it, which makes no other call.
    """
    if is_about_another_key(error, attempt):
        return False
    if isinstance(error, NotExecuted) and (of_step or not attempt.derived):
        return True
    try:
        return attempt.call.policy.proves_nothing_happened(error)
    except Exception:  # noqa: BLE001 - a proof that fails is none, and must not hide what happened to the handler
        logger.exception("The policy's `not_executed` failed; the outcome counts as unknown.")
        return False


def is_mistake(error: BaseException, attempt: Attempt) -> bool:
    """True if the work fails in this way each time, until its code or its policy is changed."""
    whole = attempt.call.policy.transaction is Transaction.WHOLE
    return isinstance(error, NotAResponse) or (whole and is_nested_durable(error))


def is_about_another_key(error: BaseException, attempt: Attempt) -> bool:
    """True if the exception left the work of another key, as that of a `once` inside a view: here it proves nothing."""
    return named_record(error) not in (None, attempt.call.id)


def release(attempt: Attempt, code: str, *, give_back: bool = False, proven: bool = False, counts: bool = True) -> bool:
    """Free the key (T4). False if an earlier attempt is in doubt, or the record is not this attempt's.

    With `give_back` the next request may even be a different one: nothing was done with the key. It `counts` as one of
    the attempts unless the view itself answered that nothing was done.
    """
    try:
        with limits.limited(attempt.using, attempt.limit):
            if give_back:
                done = attempts.give_back(attempt.ref, attempt.token, code)
            else:
                derived = bool(attempt.derived) and not proven
                done = attempts.free_key(attempt.ref, attempt.token, code, derived=derived, counts=counts)
    except StoreUnavailable:
        _leave_to_the_sweeper(attempt)
        return False
    if done:
        announce(signals.released, call=attempt.call, code=code, using=attempt.using)
    return done


def doubt(attempt: Attempt, code: str, error: BaseException | None = None) -> bool:
    """Make the outcome unknown (T5). If the store does not answer now, the sweeper does it later."""
    try:
        return _mark_doubt(attempt, code, error)
    except StoreUnavailable:
        _leave_to_the_sweeper(attempt)
        return False


def _mark_doubt(attempt: Attempt, code: str, error: BaseException | None) -> bool:
    change = partial(attempts.mark_doubtful, attempt.ref, attempt.token, code, derived=bool(attempt.derived))
    details = {
        "attempt": attempt.number,
        "seconds": round(attempt.seconds, 3),
        "derived": attempt.derived,
        **collect_evidence(error),
    }
    with limits.limited(attempt.using, attempt.limit):
        done = events.audit(change, attempt.ref, Kind.IN_DOUBT, reason=code, details=details)
    if done:
        call, page = attempt.call, docs_url("how-to/admin", "something-is-red-where-to-begin")
        logger.warning(
            "The outcome of %s is unknown: %s. Idempotency record %s. See %s", call.title, code, call.id, page
        )
        announce(signals.doubted, call=attempt.call, code=code, using=attempt.using)
    return done


def _leave_to_the_sweeper(attempt: Attempt) -> None:
    limits.drop_broken(attempt.using)
    call = attempt.call
    logger.exception(
        "The end of %s could not be stored; its lease expires. Idempotency record %s.", call.title, call.id
    )
