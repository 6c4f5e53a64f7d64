"""The whole life of a call for callers without HTTP: begin, run, finish."""

from collections.abc import Callable
from typing import Final, TypeVar

from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer
from django_idempotency.core.policy import Mode, Transaction
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import LostFence, NotExecuted, OutcomeUnknown
from django_idempotency.flow.atomic import run_atomic
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin
from django_idempotency.flow.finish import doubt, fail, finish, proves_nothing_happened
from django_idempotency.flow.heartbeat import beating

T = TypeVar("T")

_UNPROVEN: Final = "What the work raised does not prove that it had no effect."


def run_call(call: Call, work: Callable[[Attempt], tuple[T, Reply]], using: str | None = None) -> T | Answer:
    """Run `work` at most once for this key, in the policy's mode, and store its reply.

    If the policy's transaction is late, `work` runs without one and may finish the attempt itself.
    """
    if call.policy.mode is Mode.ATOMIC:
        return _run_atomic(call, work, using)
    begun = begin(call, using)
    if not isinstance(begun, Attempt):
        return begun
    try:
        if call.policy.transaction is Transaction.LATE:
            return _run_late(begun, work)
        return finish(begun, lambda: work(begun))
    except (LostFence, OutcomeUnknown) as error:
        # The error may be about another key, but this one's work failed as well.
        doubt(begun, type(error).__name__, error)
        raise
    except BaseException as error:
        if not fail(begun, error) and isinstance(error, NotExecuted):
            raise OutcomeUnknown(_UNPROVEN) from error
        raise


def _run_atomic(call: Call, work: Callable[[Attempt], tuple[T, Reply]], using: str | None) -> T | Answer:
    attempts: list[Attempt] = []

    def noted(attempt: Attempt) -> tuple[T, Reply]:
        attempts.append(attempt)
        return work(attempt)

    try:
        return run_atomic(call, noted, using)
    except NotExecuted as error:
        if attempts and not proves_nothing_happened(error, attempts[-1]):
            raise OutcomeUnknown(_UNPROVEN) from error
        raise


def _run_late(attempt: Attempt, work: Callable[[Attempt], tuple[T, Reply]]) -> T:
    with beating(attempt):
        done = work(attempt)
    return done[0] if attempt.finished else finish(attempt, lambda: done, rerun=True)
