"""Check the arguments of policies and profiles where they are written, not at the first request."""

from collections.abc import Callable, Collection
from datetime import timedelta
from enum import StrEnum
from inspect import iscoroutinefunction, signature
from typing import Any, Final, NamedTuple

LONGEST_NAMESPACE: Final = 255
LONGEST_DURATION: Final = timedelta(seconds=2**30 - 1)  # the record's columns hold the sum of two


class ArgumentType(NamedTuple):
    """What values an argument takes, and how a message describes them."""

    accepts: Callable[[Any], bool]
    description: str


def require_type(name: str, value: Any, expected: ArgumentType) -> None:
    """Raise TypeError if the argument does not take this value."""
    if not expected.accepts(value):
        raise TypeError(f"{name} must be {expected.description}; it is {value!r}.")


def require_whole_seconds(name: str, value: timedelta) -> None:
    """Raise ValueError unless the duration can be stored and is a whole number of seconds."""
    if value < timedelta(seconds=1) or value.microseconds:
        raise ValueError(f"{name} must be a whole number of seconds, at least one; it is {value!r}.")
    if value > LONGEST_DURATION:
        raise ValueError(f"{name} must not be longer than {LONGEST_DURATION.days} days; it is {value!r}.")


def require_namespace(value: Any) -> str:
    """Return the text; raise ValueError if it separates nothing."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAMESPACE or not value.isprintable():
        raise ValueError(
            f"must be a text of 1 to {LONGEST_NAMESPACE} printable characters, or a function without arguments that "
            f"returns one; it is {value!r}."
        )
    return value


def require_plain_function(value: Callable[[], str]) -> Callable[[], str]:
    """Return the function; raise TypeError if it is a coroutine function or has to be given an argument."""
    if iscoroutinefunction(value) or iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004 - an object's
        raise TypeError(f"must not be a coroutine function: nobody awaits {value!r}.")
    try:
        signature(value).bind()
    except ValueError:  # a built-in tells nothing about its arguments
        return value
    except TypeError as error:
        raise TypeError(f"is called without arguments, which {value!r} does not accept: {error}.") from None
    return value


def to_member(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    """Return the member with this value; raise ValueError with all values if there is none."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in kind)
        raise ValueError(f"{name} must be one of {known}; it is {value!r}.") from None


def instance_of(kind: type, description: str) -> ArgumentType:
    """Return the type of the instances of a class."""
    return ArgumentType(lambda value: isinstance(value, kind), description)


def optional(expected: ArgumentType) -> ArgumentType:
    """Return the type that takes None too."""
    return ArgumentType(lambda value: value is None or expected.accepts(value), f"{expected.description} or None")


def _are_exceptions(value: Any) -> bool:
    members = value if isinstance(value, Collection) else (None,)
    return all(isinstance(each, type) and issubclass(each, Exception) for each in members)


def _are_names(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def _are_statuses(value: Any) -> bool:
    return callable(value) or (isinstance(value, Collection) and all(isinstance(each, int) for each in value))


TEXT: Final = instance_of(str, "text")
FLAG: Final = instance_of(bool, "True or False")
NUMBER: Final = instance_of(int, "a whole number")
TIMEDELTA: Final = instance_of(timedelta, "a timedelta")
FUNCTION: Final = ArgumentType(callable, "a function")
NAMES: Final = ArgumentType(_are_names, "a collection of names")
EXCEPTIONS: Final = ArgumentType(_are_exceptions, "a collection of exception classes")
STATUS_FILTER: Final = ArgumentType(_are_statuses, "a function, a collection of statuses")
