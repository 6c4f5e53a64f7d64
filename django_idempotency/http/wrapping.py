"""The callables that decorators wrap around a view, and the policies that they carry."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any, Final

from django_idempotency.conf import Arguments
from django_idempotency.http.private_names import ninja_operations, rest_class

POLICY_MARK: Final = "_idempotency"  # on a decorated callable: the policy's arguments, or None if it is exempt
NINJA_CHECKS: Final = (
    "_idempotency_checks"  # on a protected operation of django-ninja: the checks before its protection
)
_GUARD: Final = "_idempotency_guard"  # on the callable that `@idempotent` returned: itself


def layers(callback: Any) -> Iterator[Any]:
    """Yield a callable and those that it wraps, outermost first. The search ends at a class-based view.

    A decorator around one has its class as well, because functools.wraps copies it.
    """
    seen: set[int] = set()
    found = [callback]
    while found:
        layer = found.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield layer
        is_of_class = class_of(layer) is not None
        found.extend(each for each in _wrapped_by(layer) if not is_of_class or class_of(each) is not None)


def mark_policy(guard: Any, arguments: Arguments) -> None:
    """Mark what `@idempotent` returns."""
    setattr(guard, POLICY_MARK, arguments)
    setattr(guard, _GUARD, guard)


def mark_of(layer: Any) -> Arguments | None:
    """Return the arguments that this callable carries: its own, or those that functools.wraps copied to it."""
    mark = getattr(layer, "__dict__", {}).get(POLICY_MARK)
    return mark if isinstance(mark, Arguments) else None


def is_guard(layer: Any) -> bool:
    """True if `@idempotent` returned this callable, and no decorator copied the mark to it with functools.wraps."""
    return getattr(layer, "__dict__", {}).get(_GUARD) is layer


def is_wrapper(layer: Any) -> bool:
    """True if this callable has another one in it, as what a decorator returns has."""
    return any(True for _ in _wrapped_by(layer))


def marked_methods(view: type) -> Iterator[tuple[str, Arguments]]:
    names = {name for base in view.__mro__ for name, value in vars(base).items() if isinstance(value, FunctionType)}
    for name in sorted(names):
        marks = (mark_of(layer) for layer in layers(getattr(view, name)))
        mark = next(filter(None, marks), None)
        if mark is not None:
            yield name, mark


def class_of(layer: Any) -> type | None:
    view: type | None = rest_class(layer) or getattr(layer, "view_class", None)
    return view


def _wrapped_by(layer: Any) -> Iterator[Any]:
    if isinstance(layer, partial):
        yield layer.func
        return
    for content in closure_values(layer):
        if isinstance(content, FunctionType | partial):
            yield content
        for operation in ninja_operations(content):
            yield from (operation.view_func, operation.run)
    if hasattr(layer, "__wrapped__"):
        yield layer.__wrapped__


def closure_values(layer: Any) -> Iterator[Any]:
    """Yield the values that a function closes over."""
    for cell in getattr(layer, "__closure__", None) or ():
        with suppress(ValueError):  # not assigned yet
            yield cell.cell_contents
