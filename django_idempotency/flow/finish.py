"""How an attempt ends: its answer is stored, or proof that nothing happened, or doubt."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from django.db import DataError, Error, IntegrityError, ProgrammingError, transaction

from django_idempotency import signals
from django_idempotency.core.decisions import Record
from django_idempotency.core.policy import OnError, Policy
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import (
    AlreadyFinished,
    InsideTransaction,
    LostFence,
    NotExecuted,
    OutcomeUnknown,
    StoreUnavailable,
)
from django_idempotency.flow.attempt import Attempt
from django_idempotency.signals import announce, logger
from django_idempotency.store import attempts, events, limits, records

T = TypeVar("T")

# The server itself said no, as a deferred constraint does at COMMIT: the transaction was rolled back for certain.
_REFUSED: Final = (IntegrityError, DataError, ProgrammingError)


Stands: TypeAlias = Callable[[Attempt, Record], bool]


def finish(attempt: Attempt, work: Callable[[], tuple[T, Reply]], *, rerun: bool = False) -> T:
    """T3: the domain writes of `work` and the completion with its reply, in one transaction.

    A refusal proves nothing while an earlier attempt is in doubt: then the record becomes unknown. An operation that
    ran to its end refuses because of what stands in its record, and that is proof.
    """
    return end(attempt, lambda: _finish_once(attempt, work), completed_by, rerun=rerun)


def end(attempt: Attempt, once: Callable[[], T], stands: Stands, *, rerun: bool) -> T:
    """What one transaction does to end this attempt.

    `rerun` says that it does nothing outside this database, so that it may run again after a deadlock.
    A connection lost at COMMIT is read back: `stands` says whether the record is what the transaction would have made
    of it. LostFence means that everything was rolled back.
    """
    _may_finish(attempt)
    if attempt.in_doubt is not None:  # its operation raised, and the view went on: no answer settles the step
        doubt(attempt, "step_in_doubt")
        raise OutcomeUnknown(f"Nobody knows whether the step {attempt.in_doubt!r} happened: no answer is kept.")
    for remaining in reversed(range(limits.TRIES)):
        try:
            result = once()
            break
        except _RefusedInDoubt:
            doubt(attempt, "refused_while_tainted")
            raise OutcomeUnknown from None
        except LostFence:
            fence_lost(attempt)
            raise
        except Uncertain as uncertain:
            if rerun and remaining and limits.may_repeat(uncertain):
                continue
            result = read_back(attempt, uncertain, stands)
            break
        except Error as error:
            if not (rerun and remaining and _may_repeat(error, attempt.using)):
                raise
    attempt.finished = True
    return result


def _may_repeat(error: Error, using: str) -> bool:
    """Before the COMMIT nothing stands, so a connection that was lost until then costs nothing but another one."""
    limits.drop_broken(using)
    return limits.may_repeat(error) or limits.was_lost(error, using)


def _may_finish(attempt: Attempt) -> None:
    if attempt.finished:
        raise AlreadyFinished
    try:
        limits.inside_test_case(attempt.using)
    except InsideTransaction:
        raise InsideTransaction(
            "An answer cannot be stored inside an open transaction: a rollback would forget it. "
            "Move the call out of `atomic()`, and leave autocommit on."
        ) from None


class Uncertain(Exception):
    """The store failed while the completion was being written; `result` is what would have been answered."""

    def __init__(self, result: object) -> None:
        self.result = result


@contextmanager
def completing(attempt: Attempt) -> Iterator[Callable[[object], None]]:
    """The transaction that ends an attempt.

    From the call of what this yields to the end of the COMMIT the store has a limit, and its failing is doubt. What the
    project does on commit comes after both: it has no limit, and its failing does not take the answer back.
    """
    results: list[object] = []
    limit = ExitStack()

    def committed() -> None:
        attempt.finished = bool(results)
        limit.close()

    def begins(result: object) -> None:
        results.append(result)
        limit.enter_context(limits.limited(attempt.using, attempt.call.policy.claim_limit.total_seconds()))

    try:
        nested = limits.inside_test_case(attempt.using)  # where nothing is ever committed
        with limit, transaction.atomic(using=attempt.using):
            if not nested:
                transaction.on_commit(committed, using=attempt.using)
            yield begins
    except Exception as error:
        if attempt.finished:
            logger.exception("What was to be done on commit failed; the answer of %s is stored.", attempt.call.id)
            return
        if not isinstance(error, StoreUnavailable):
            raise
        if not results:
            raise
        if isinstance(error.__cause__, _REFUSED):
            raise error.__cause__ from None
        raise Uncertain(results[0]) from error


def _finish_once(attempt: Attempt, work: Callable[[], tuple[T, Reply]]) -> T:
    call, using = attempt.call, attempt.using
    with completing(attempt) as begins:
        result, reply = work()
        begins(result)
        certain = reply.status < 400 or attempt.settled
        if not attempts.complete(call.scope, call.id, attempt.token, reply, certain, using):
            raise LostFence if certain or not _still_mine(attempt) else _RefusedInDoubt
    announce(signals.completed, call=call, reply=reply, seconds=attempt.seconds, using=using)
    return result


class _RefusedInDoubt(Exception):
    """A refusal was to be stored while an earlier attempt may still land; its writes roll back."""


def _still_mine(attempt: Attempt) -> bool:
    record = records.find(attempt.call.scope, attempt.call.id, attempt.using)
    return record is not None and record.token == attempt.token and record.status in Status.OWNED


def completed_by(attempt: Attempt, record: Record) -> bool:
    """Whether this attempt's answer is the one that is stored."""
    return record.token == attempt.token and record.status is Status.COMPLETED


def read_back(attempt: Attempt, uncertain: Uncertain, stands: Stands = completed_by) -> Any:
    """Ask the record what became of a COMMIT: marking it as doubtful waits for it, and fails when it was stored."""
    call, using = attempt.call, attempt.using
    try:
        limits.drop_broken(using)
        if not _mark_doubt(attempt, "completion_lost"):
            record = records.find(call.scope, call.id, using)
            if record is not None and stands(attempt, record):
                return uncertain.result
    except (StoreUnavailable, Error):
        logger.exception("Idempotency record %s could not be read back; its lease will run out.", call.id)
    raise OutcomeUnknown from uncertain


def fence_lost(attempt: Attempt) -> None:
    """Say that this attempt's record is another's now."""
    logger.error(
        "An attempt of idempotency record %s lost its lease: its writes were rolled back. Is the lease too short?",
        attempt.call.id,
    )
    announce(signals.fence_lost, call=attempt.call, using=attempt.using)


def fail(attempt: Attempt, error: BaseException) -> bool:
    """What an exception that is not an answer means: proof that nothing happened (T4, True), or doubt (T5)."""
    policy = attempt.call.policy
    released = policy.on_error is OnError.RELEASE and isinstance(error, Exception)
    if (released or _proves_nothing_happened(error, policy)) and release(attempt, type(error).__name__):
        return True
    doubt(attempt, type(error).__name__)
    return False


def _proves_nothing_happened(error: BaseException, policy: Policy) -> bool:
    if isinstance(error, NotExecuted) or policy.not_executed is None:
        return isinstance(error, NotExecuted)
    try:
        return policy.not_executed(error)
    except Exception:  # noqa: BLE001 - a proof that fails is none, and must not hide what happened to the handler
        logger.exception("The policy's `not_executed` failed; the attempt counts as doubtful.")
        return False


def release(attempt: Attempt, code: str, *, give_back: bool = False) -> bool:
    """T4: the key may be claimed again. False when an earlier attempt is in doubt, or the record is not ours.

    With `give_back` the next request may even be another one: nothing was done with the key.
    """
    call, using = attempt.call, attempt.using
    try:
        with limits.limited(using, call.policy.claim_limit.total_seconds()):
            write = attempts.give_back if give_back else attempts.release
            done = write(call.scope, call.id, attempt.token, code, using)
    except StoreUnavailable:
        _left_to_the_sweeper(attempt)
        return False
    if done:
        announce(signals.released, call=call, code=code, using=using)
    return done


def doubt(attempt: Attempt, code: str) -> bool:
    """T5: nobody knows. A store that does not answer now leaves it to the sweeper."""
    try:
        return _mark_doubt(attempt, code)
    except StoreUnavailable:
        _left_to_the_sweeper(attempt)
        return False


def _mark_doubt(attempt: Attempt, code: str) -> bool:
    call, using = attempt.call, attempt.using
    with limits.limited(using, call.policy.claim_limit.total_seconds()), transaction.atomic(using=using):
        done = attempts.doubt(call.scope, call.id, attempt.token, code, using)
        if done:
            events.note(call.id, "in doubt", "T5", using, reason=code)
    if done:
        logger.warning("The outcome of idempotency record %s is unknown: %s.", call.id, code)
        announce(signals.doubted, call=call, code=code, using=using)
    return done


def _left_to_the_sweeper(attempt: Attempt) -> None:
    limits.drop_broken(attempt.using)
    logger.exception("The end of idempotency record %s could not be stored; its lease will run out.", attempt.call.id)
