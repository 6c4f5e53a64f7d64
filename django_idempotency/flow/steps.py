"""Work in steps that any process can go on with.

    @operation("rides.create")
    def create_ride(op, *, user_id, origin, target):
        ride = op.phase("ride_created", book_ride, user_id, origin, target)
        charge = op.effect("charge_created", partial(charge_for, ride), in_doubt="repeat")
        op.phase("receipt_queued", queue_receipt, ride, charge)
        return json_reply(201, {"ride": ride})

A phase is local: its writes and its marker are one transaction. An effect is foreign: a marker before, the call outside
any transaction, a marker after. What is done is not done again; its result is given back.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from django.db import transaction

from django_idempotency.core.decisions import derived_key
from django_idempotency.core.policy import LostLease
from django_idempotency.core.progress import Progress, StepState
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import ChangedDefinition, InsideTransaction, LostFence, NotExecuted, StepInDoubt
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import fence_lost
from django_idempotency.flow.registry import Operation, get_operation, operation_of
from django_idempotency.store import limits, operations

InDoubt = Literal["repeat", "reconcile"]


class Op:
    """A running operation, as its function sees it."""

    def __init__(self, attempt: Attempt, progress: Progress, steps_done: int) -> None:
        self._attempt = attempt
        self._progress = progress
        self._steps_done = steps_done
        self._position = 0
        self._in_phase = False
        attempt.in_doubt = progress.in_doubt

    def phase(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Local writes: one transaction with the marker. The result is JSON."""
        if self._in_phase:  # its mark would stand before that of the phase around it, where nobody comes by again
            raise InsideTransaction(f"The phase {name!r} is inside another one: put it before that one, or after it.")
        recorded = self._recorded(name)
        if recorded is not None:
            return recorded.result
        before = self._progress, self._steps_done
        self._in_phase = True
        try:
            with transaction.atomic(using=self._attempt.using):
                result = function(*args, **kwargs)  # may tell its progress
                self._mark(self._progress.done(name, result), LostLease.RESUME)
        except BaseException:  # rolled back, perhaps not before the COMMIT, where deferred constraints are checked
            self._progress, self._steps_done = before
            raise
        finally:
            self._in_phase = False
        return self._progress.steps[-1].result

    def effect(self, name: str, function: Callable[[str], Any], /, *, in_doubt: InDoubt) -> Any:
        """One foreign call, given its downstream key. `in_doubt` says what a crash in its middle means.

        "repeat": the other side knows the key, so the same call is sent again. "reconcile": the record becomes unknown,
        and nothing runs until somebody has found out.
        """
        if in_doubt not in ("repeat", "reconcile"):
            raise ValueError(f"in_doubt must be 'repeat' or 'reconcile'; it is {in_doubt!r}.")
        recorded = self._recorded(name)
        if recorded is not None and recorded.state is StepState.DONE:
            return recorded.result
        limits.inside_test_case(self._attempt.using)  # raises inside any other transaction
        if recorded is not None and in_doubt == "reconcile":  # begun by code that would have repeated it
            self._mark(self._progress.started(name), LostLease.UNKNOWN)
            self._refuse_in_doubt("it is not begun again")
        if recorded is None:
            lost = LostLease.RESUME if in_doubt == "repeat" else LostLease.UNKNOWN
            self._mark(self._progress.started(name), lost)
        try:
            result = function(derived_key(self._attempt.call.id, name))
        except NotExecuted:
            if recorded is None:  # else an earlier call may have landed: what this one proves says nothing about it
                self._mark(self._progress.taken_back(), LostLease.RESUME)
            raise
        self._mark(self._progress.done(name, result), LostLease.RESUME)
        return self._progress.steps[-1].result

    def end(self) -> None:
        """The function has returned: it must have come by every step in the record, and none may be in doubt."""
        if self._position < len(self._progress.steps):
            missed = self._progress.steps[self._position].name
            raise ChangedDefinition(
                f"The operation ended before the step {missed!r}, which stands in this record: it was changed under "
                "work in flight. Let the code that did that step finish it, or settle the record by hand."
            )
        self._refuse_in_doubt("no answer is kept")
        self._attempt.settled = True

    def progress(self, done: int, total: int) -> None:
        """Tell whoever asks how far it is. Inside a phase nobody sees it before the phase ends."""
        self._progress = self._progress.so_far(done, total)
        call, attempt = self._attempt.call, self._attempt
        if not operations.report(
            call.scope, call.id, attempt.token, self._steps_done, self._progress.dump(), attempt.using
        ):
            fence_lost(attempt)
            raise LostFence

    def _recorded(self, name: str) -> Any:
        if self._position >= len(self._progress.steps):
            self._refuse_in_doubt(f"the step {name!r} does not begin")
        recorded = self._progress.at(self._position, name)
        self._position += 1
        return recorded

    def _refuse_in_doubt(self, so: str) -> None:
        """Whatever came next would hide the doubt: the next mark, or an answer that counts."""
        step = self._progress.in_doubt
        if step is not None:
            raise StepInDoubt(
                f"Nobody knows whether the step {step!r} happened, so {so}. Let what an effect raises leave the "
                "operation. A refusal is a result: return it from the effect. Where the call never left, raise "
                "NotExecuted in the effect's function."
            )

    def _mark(self, progress: Progress, on_lost_lease: LostLease) -> None:
        attempt, text, done = self._attempt, progress.dump(), self._steps_done
        then = done + 1 if progress.steps else 0  # with no step left the key may be freed, as before the first one
        place = (text, progress.recovery_point, on_lost_lease)
        if not operations.mark(attempt.call.scope, attempt.call.id, attempt.token, done, then, *place, attempt.using):
            fence_lost(attempt)
            raise LostFence
        self._progress = Progress.load(text)  # the result as a later process would see it
        attempt.in_doubt = self._progress.in_doubt
        self._steps_done = then


def run(attempt: Attempt, function: Callable[..., Reply], arguments: dict[str, Any]) -> Reply:
    """Run an operation from where its record stands: the beginning, or the step after the last one that was marked."""
    wanted = operation_of(function)
    call = attempt.call
    fresh = operations.Run(wanted.name, json.dumps(arguments, allow_nan=False), Progress(wanted.version).dump(), 0)
    if operations.begin(call.scope, call.id, attempt.token, fresh, attempt.using):
        return _call(wanted, Op(attempt, Progress(wanted.version), 0), fresh.arguments)
    return resume(attempt)


def resume(attempt: Attempt) -> Reply:
    """Go on with what stands in the record, with the arguments that stand there."""
    stored = operations.read(attempt.call.scope, attempt.call.id, attempt.using)
    if stored is None or not stored.name:
        raise LostFence
    wanted = get_operation(stored.name)
    progress = Progress.load(stored.progress)
    if progress.version > wanted.version:
        raise ChangedDefinition(
            f"The operation {wanted.name!r} was begun by version {progress.version} and this process has version "
            f"{wanted.version}: newer code has to go on with it."
        )
    mine = replace(progress, version=wanted.version)  # what it marks, older code does not know
    return _call(wanted, Op(attempt, mine, stored.steps_done), stored.arguments)


def _call(wanted: Operation, op: Op, arguments: str) -> Reply:
    reply = wanted.function(op, **json.loads(arguments))
    op.end()
    return reply
