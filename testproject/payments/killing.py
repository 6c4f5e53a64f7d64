"""A request can ask for the death of its own process, at any point of an operation: `{"simulate": {"kill": …}}`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from django_idempotency.operations import Op
from testproject.payments.simulate import Simulation

# Not among the operation's arguments: whoever goes on with it is not to die of them too.
_NONE = Simulation()
_SIMULATION = ContextVar("simulation", default=_NONE)


@contextmanager
def simulating(simulation: Simulation) -> Iterator[None]:
    before = _SIMULATION.set(simulation)
    try:
        yield
    finally:
        _SIMULATION.reset(before)


def current() -> Simulation:
    return _SIMULATION.get()


def points(*steps: str) -> list[str]:
    """Every boundary between steps, and the beginning and the end of each step's own work."""
    return [f"before {steps[0]}", *(f"{at} {step}" for step in steps for at in ("inside", "at the end of", "after"))]


class KillableSteps:
    """An operation's steps, with the points around them."""

    def __init__(self, op: Op) -> None:
        self._op = op

    def phase(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        with _around(name):
            return self._op.phase(name, _opened(name, function), *arguments)

    def effect(self, name: str, function: Callable[[str], Any], *, in_doubt: Literal["repeat", "reconcile"]) -> Any:
        with _around(name):
            return self._op.effect(name, _opened(name, function), in_doubt=in_doubt)


@contextmanager
def _around(step: str) -> Iterator[None]:
    current().reach(f"before {step}")
    yield
    current().reach(f"after {step}")


def _opened(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The step's work, with a point at its beginning and one between its end and its marker."""

    def work(*arguments: Any) -> Any:
        current().reach(f"inside {step}")
        result = function(*arguments)
        current().reach(f"at the end of {step}")
        return result

    return work
