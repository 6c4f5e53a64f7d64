"""The operations and the reconcilers that this process knows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.core.validation import dump_named, require_whole_seconds
from django_idempotency.exceptions import UnknownOperation
from django_idempotency.flow.settle import DoubtfulStep, Verdict
from django_idempotency.models import IdempotencyKey

F = TypeVar("F", bound=Callable[..., Reply])
R = TypeVar("R", bound=Callable[..., Any])

Reconciler: TypeAlias = Callable[[IdempotencyKey], Verdict]
StepReconciler: TypeAlias = Callable[[IdempotencyKey, str], Verdict]

_MARK: Final = "_idempotency_operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """A registered function. A newer version may continue the work of an older one, never the other way round."""

    name: str
    function: Callable[..., Reply]
    version: int = 1
    longest: timedelta = timedelta(hours=1)

    def dump_arguments(self, arguments: Mapping[str, Any]) -> str:
        """Return the arguments as the record stores them; the error names the one that is not JSON."""
        return dump_named(f"The argument {{!r}} of the operation {self.name!r}", arguments)


_OPERATIONS: Final[dict[str, Operation]] = {}
_RECONCILERS: Final[dict[str, Reconciler]] = {}
_STEP_RECONCILERS: Final[dict[tuple[str, str], StepReconciler]] = {}


def operation(name: str, *, version: int = 1, longest: timedelta = timedelta(hours=1)) -> Callable[[F], F]:
    """Register a function whose first argument is the running `Op`, and whose other arguments are JSON.

    A worker extends the lease while the function runs, for at most `longest`.
    """
    if not isinstance(longest, timedelta):
        raise ValueError(f"longest must be a timedelta; it is {longest!r}.")
    require_whole_seconds("longest", longest)

    def register(function: F) -> F:
        made = Operation(name, function, version, longest)
        if _OPERATIONS.setdefault(name, made) != made:
            raise ValueError(f"An operation named {name!r} is already registered.")
        setattr(function, _MARK, made)
        return function

    return register


def find_operation(name: str) -> Operation | None:
    """Return the operation with this name, or None if this process does not know it."""
    return _OPERATIONS.get(name)


def known_operations() -> list[str]:
    """Return the names of the operations that this process knows."""
    return list(_OPERATIONS)


def get_operation(name: str) -> Operation:
    """Return the operation with this name; UnknownOperation if this process does not know it."""
    found = find_operation(name)
    if found is None:
        raise UnknownOperation(f"No operation {name!r} is registered here. Known: {', '.join(sorted(_OPERATIONS))}.")
    return found


def operation_of(function: Callable[..., Any]) -> Operation:
    """Return the operation that a decorated function is."""
    found = getattr(function, _MARK, None)
    if not isinstance(found, Operation):
        raise UnknownOperation(f"{function!r} is not an operation: decorate it with @operation('a.name').")
    return found


def knows(name: str, progress: str) -> bool:
    """True if this process has the code for it: that operation, in the version of its progress or a newer one."""
    known = find_operation(name)
    return known is not None and Progress.load(progress).version <= known.version


def reconciler(operation: str, *, step: str = "") -> Callable[[R], R]:
    """Register the function that finds out what happened when the outcome of this operation is unknown.

    With `step`, the function is called for that effect only and also receives its downstream key; `operation` is then
    the name given to `@operation`. An effect without a reconciler of its own uses that of the operation.
    """

    def register(function: R) -> R:
        found = _STEP_RECONCILERS.setdefault((operation, step), function) if step else None
        if (found or _RECONCILERS.setdefault(operation, function)) is not function:
            where = f"The step {step!r} of {operation!r}" if step else f"The operation {operation!r}"
            raise ValueError(f"{where} already has a reconciler.")
        return function

    return register


def find_reconciler(operation: str) -> Reconciler | None:
    """Return the reconciler of this operation, or None if this process has none."""
    return _RECONCILERS.get(operation)


def find_step_reconciler(operation: str, step: str) -> StepReconciler | None:
    """Return the reconciler of one effect of this operation, or None if it has none of its own."""
    return _STEP_RECONCILERS.get((operation, step))


def find_reconciler_for(row: IdempotencyKey, step: DoubtfulStep | None) -> Reconciler | None:
    """Return the step's own reconciler, or else the operation's."""
    ask = None if step is None else find_step_reconciler(row.run_name, step.name)
    if step is not None and ask is not None:
        return partial(_ask_about_step, ask, step.key)
    return find_reconciler(row.operation)


def _ask_about_step(ask: StepReconciler, key: str, record: IdempotencyKey) -> Verdict:
    return ask(record, key)


def reconciled_operations() -> list[str]:
    """Return the names of the operations that have a reconciler in this process."""
    return list(_RECONCILERS)


def step_reconciled_operations() -> list[str]:
    """Return the names of the operations that have a reconciler for one of their steps in this process."""
    return sorted({name for name, _ in _STEP_RECONCILERS})
