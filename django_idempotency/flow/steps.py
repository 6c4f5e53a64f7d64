"""A running operation: its steps, and the marks that let another process continue after them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from django.db import Error, transaction

from django_idempotency.core.progress import Progress, StepState
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import LostLease
from django_idempotency.exceptions import (
    ChangedDefinition,
    InsideTransaction,
    LostFence,
    OutcomeUnknown,
    StepInDoubt,
    StoreUnavailable,
)
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.completion import REFUSED_BY_SERVER
from django_idempotency.flow.finish import proves_nothing_happened, tell_fence_lost
from django_idempotency.flow.registry import Operation, get_operation, operation_of
from django_idempotency.store import limits, operations
from django_idempotency.store.continuity import Continuity, Replaced, RolledBack
from django_idempotency.store.operations import StoredOperation

WhenInDoubt: TypeAlias = Literal["repeat", "reconcile"]


class Op:
    """A running operation, as its function sees it."""

    def __init__(self, attempt: Attempt, progress: Progress, steps_done: int) -> None:
        self._attempt = attempt
        self._progress = progress
        self._steps_done = steps_done
        self._position = 0
        self._in_phase = False
        attempt.in_doubt = progress.step_in_doubt

    def phase(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run writes to this database and store their marker, in one transaction. Later runs get the stored result."""
        if self._in_phase:  # the inner phase would be recorded before the outer one and never be reached on replay
            raise InsideTransaction(f"The phase {name!r} is inside another one: put it before that one, or after it.")
        recorded = self._recorded(name)
        if recorded is not None:
            return recorded.result
        before = self._progress, self._steps_done
        self._in_phase = True
        try:
            using = self._attempt.using
            store = _StoreAtWork(self._attempt)
            with store, transaction.atomic(using=using), Continuity(using) as continuity:
                with store.project_code():
                    result = function(*args, **kwargs)  # may report its progress
                continuity.prove()
                self._mark(self._progress.mark_done(name, result, self._attempt.moment), LostLease.RESUME)
        except BaseException:  # rolled back, perhaps only at the COMMIT, where deferred constraints are checked
            self._progress, self._steps_done = before
            raise
        finally:
            self._in_phase = False
        return self._progress.steps[-1].result

    def effect(self, name: str, function: Callable[[str], Any], /, *, in_doubt: WhenInDoubt) -> Any:
        """Call an external service with a downstream key. `in_doubt` says what a crash during the call means.

        "repeat": the call is sent again, because the service recognises the key. "reconcile": the outcome becomes
        unknown, and nothing runs until it is settled.
        """
        if in_doubt not in ("repeat", "reconcile"):
            raise ValueError(f"in_doubt must be 'repeat' or 'reconcile'; it is {in_doubt!r}.")
        recorded = self._recorded(name)
        if recorded is not None and recorded.state is StepState.DONE:
            return recorded.result
        limits.inside_test_case(self._attempt.using)  # raises inside any other transaction
        if recorded is not None and in_doubt == "reconcile":  # begun by code that would have repeated the call
            self._mark(self._progress.mark_started(name, recorded.begun), LostLease.UNKNOWN)
            self._refuse_in_doubt("it is not begun again")
        if recorded is None:
            lost = LostLease.RESUME if in_doubt == "repeat" else LostLease.UNKNOWN
            self._mark(self._progress.mark_started(name, self._attempt.moment), lost)
        try:
            result = function(self._attempt.derive(name))
        except BaseException as error:
            if not proves_nothing_happened(error, self._attempt, of_step=True):
                raise
            if recorded is None:  # an earlier call may have landed, and this one's proof says nothing about it
                self._mark(self._progress.drop_last(), LostLease.RESUME)
            raise
        self._mark(self._progress.mark_done(name, result, self._attempt.moment), LostLease.RESUME)
        return self._progress.steps[-1].result

    def progress(self, done: int, total: int) -> None:
        """Report how far the work is. A report inside a phase becomes visible when the phase ends."""
        self._progress = self._progress.report(done, total)
        attempt = self._attempt
        with _StoreAtWork(attempt):
            reported = operations.report(attempt.ref, attempt.token, self._steps_done, self._progress.dump())
        if not reported:
            tell_fence_lost(attempt)
            raise LostFence

    def end(self) -> None:
        """Check, after the function has returned, that it reached every recorded step and that none is in doubt."""
        if self._position < len(self._progress.steps):
            missed = self._progress.steps[self._position].name
            raise ChangedDefinition(
                f"The operation ended before the step {missed!r}, which this record has been through: its code was "
                "changed while the work was in flight. Let the code that did that step finish it, or settle the record."
            )
        self._refuse_in_doubt("no response is stored")
        self._attempt.settled = True

    def _recorded(self, name: str) -> Any:
        if self._position >= len(self._progress.steps):
            self._refuse_in_doubt(f"the step {name!r} does not begin")
        recorded = self._progress.find(self._position, name)
        self._position += 1
        return recorded

    def _refuse_in_doubt(self, consequence: str) -> None:
        """Raise if a step is in doubt: the next mark, or a response that counts, would hide it."""
        step = self._progress.step_in_doubt
        if step is not None:
            raise StepInDoubt(
                f"It is not known whether the step {step!r} happened, so {consequence}. Let the exception that an "
                "effect raises leave the operation. An error response is a result: return it from the effect. If the "
                "call never left, raise NotExecuted in the effect's function."
            )

    def _mark(self, progress: Progress, on_lost_lease: LostLease) -> None:
        attempt, text = self._attempt, progress.dump()
        then = self._steps_done + 1 if progress.steps else 0  # without any step the key may be freed
        mark = operations.Mark(self._steps_done, then, text, progress.recovery_point, on_lost_lease)
        with _StoreAtWork(attempt):
            marked = operations.mark(attempt.ref, attempt.token, mark)
        if not marked:
            tell_fence_lost(attempt)
            raise LostFence
        self._progress = Progress.load(text)  # the result as a later process would see it
        attempt.in_doubt = self._progress.step_in_doubt
        self._steps_done = then


class _StoreAtWork:
    """If the store fails in this block, the outcome is unknown: the record says how far the operation came."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._connection: object = None
        self._raised_by_project: Exception | None = None

    def __enter__(self) -> None:
        try:
            self._connection = limits.connect(self._attempt.using, self._attempt.limit).connection
        except StoreUnavailable as error:
            raise self._failure() from error

    @contextmanager
    def project_code(self) -> Iterator[None]:
        """Let the errors of the project's own code pass, unless the connection was lost."""
        try:
            yield
        except Exception as error:
            self._raised_by_project = error
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Error | Replaced | StoreUnavailable):
            return
        limits.drop_broken(self._attempt.using)
        if not self._is_about_a_statement(error):
            raise self._failure() from error

    def _is_about_a_statement(self, error: Exception) -> bool:
        """True if the project's code raised this, or if the server rejected what was to be stored."""
        if isinstance(error, RolledBack) or limits.was_lost(error, self._attempt.using, self._connection):
            return False
        return error is self._raised_by_project or isinstance(error, REFUSED_BY_SERVER)

    @staticmethod
    def _failure() -> OutcomeUnknown:
        return OutcomeUnknown("The store failed while a step was being recorded.")


def run_steps(attempt: Attempt, function: Callable[..., Reply], arguments: dict[str, Any]) -> Reply:
    """Run an operation from the step after the last one that its record has a mark of."""
    wanted = operation_of(function)
    fresh = StoredOperation(
        wanted.name, wanted.dump_arguments(arguments), Progress(wanted.version).dump(), steps_done=0
    )
    with _StoreAtWork(attempt):
        begun = operations.begin_operation(attempt.ref, attempt.token, fresh)
        stored = None if begun else operations.read_operation(attempt.ref)
    if begun:
        return _call(wanted, Op(attempt, Progress(wanted.version), 0), fresh.arguments)
    if stored is None or not stored.name:
        raise LostFence
    return resume_steps(attempt, stored)


def resume_steps(attempt: Attempt, stored: StoredOperation) -> Reply:
    """Continue what the record describes, with the arguments that it holds."""
    wanted = get_operation(stored.name)
    progress = Progress.load(stored.progress)
    if progress.version > wanted.version:
        raise ChangedDefinition(
            f"The operation {wanted.name!r} was begun by version {progress.version}, and this process has version "
            f"{wanted.version}: only newer code can continue it."
        )
    mine = replace(progress, version=wanted.version)  # older code does not know what this version marks
    return _call(wanted, Op(attempt, mine, stored.steps_done), stored.arguments)


def _call(wanted: Operation, op: Op, arguments: str) -> Reply:
    reply = wanted.function(op, **json.loads(arguments))
    op.end()
    return reply
