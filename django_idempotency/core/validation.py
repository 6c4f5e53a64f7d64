"""Check the arguments of policies and profiles where they are written, not at the first request."""

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

LONGEST_NAMESPACE: Final = 255
LONGEST_DURATION: Final = timedelta(seconds=2**30 - 1)  # the record's columns hold the sum of two

CODES: Final = (  # of the problems in core/problems.py
    "idempotency_key_missing",
    "idempotency_key_invalid",
    "idempotency_key_reused_with_different_payload",
    "idempotency_key_in_progress",
    "idempotency_key_accepted",
    "idempotency_outcome_unknown",
    "idempotency_key_expired",
    "idempotency_response_not_stored",
    "idempotency_principal_missing",
    "idempotency_not_executed",
    "idempotency_store_unavailable",
    "idempotency_attempts_exhausted",
    "idempotency_work_abandoned",
    "idempotency_operation_not_found",
)


# What other software calls the same thing.
_OTHER_NAMES: Final = {
    "ttl": "retention", "expires": "retention", "expiration": "retention", "timeout": "lease", "lock_timeout": "lease",
    "header": "profile", "optional": "required", "enforce": "required", "name": "operation",
}  # fmt: skip


def suggest(name: Any, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the one that may be meant, or all of them."""
    names = {each.lower(): each for each in known}
    wanted = name.lower() if isinstance(name, str) else ""
    close = get_close_matches(wanted, names, n=1, cutoff=0.5) or [_OTHER_NAMES.get(wanted, "")]
    if close[0] in names:
        return f"did you mean {names[close[0]]!r}?"
    return f"it must be one of {', '.join(known)}."


class ArgumentType(NamedTuple):
    """What values an argument takes, and how a message describes them."""

    accepts: Callable[[Any], bool]
    description: str


def require_type(name: str, value: Any, expected: ArgumentType) -> None:
    """Raise TypeError if the argument does not take this value."""
    if not expected.accepts(value):
        seconds = expected.accepts(timedelta(0)) and isinstance(value, int | float)
        instead = f" Write timedelta(seconds={value!r})." if seconds else ""
        raise TypeError(f"{name} must be {expected.description}; it is {value!r}.{instead}")


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
    if is_async(value):
        raise TypeError(f"must not be a coroutine function, because it is not awaited; it is {value!r}.")
    try:
        inspect.signature(value).bind()
    except ValueError:  # a built-in tells nothing about its arguments
        return value
    except TypeError as error:
        raise TypeError(f"is called without arguments, which {value!r} does not accept: {error}.") from None
    return value


def describe_choice(choices: Iterable[str], value: Any) -> str:
    """Return the end of a message about a value that is none of these: it may be a misspelt one."""
    known = [str(each) for each in choices]
    close = get_close_matches(str(value).lower(), known, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return f"must be one of {', '.join(map(repr, known))}; it is {value!r}{meant}"


def to_member(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    """Return the member with this value; raise ValueError with all values if there is none."""
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name} {describe_choice(kind, value)}") from None


def instance_of(kind: type, description: str) -> ArgumentType:
    """Return the type of the instances of a class."""
    return ArgumentType(lambda value: isinstance(value, kind), description)


def optional(expected: ArgumentType) -> ArgumentType:
    """Return the type that takes None too."""
    return ArgumentType(lambda value: value is None or expected.accepts(value), f"{expected.description} or None")


def is_async(function: Any) -> bool:
    """True if a call returns a coroutine or an async generator, which is not awaited here and is always true."""
    return is_coroutine_function(function) or any(map(inspect.isasyncgenfunction, _called(function)))


def is_coroutine_function(function: Any) -> bool:
    """True if a call returns a coroutine."""
    return any(map(inspect.iscoroutinefunction, _called(function)))


def _called(function: Any) -> tuple[Any, Any]:
    """Return the functions that a call may run: partials, methods and objects with `__call__` are seen through."""
    while isinstance(function, partial):
        function = function.func
    return function, getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted


def needs_arguments(function: Callable[..., Any]) -> bool:
    """True if this cannot be called without arguments."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # a function in C may have no signature
        return True
    return False


def is_sync_function(value: Any) -> bool:
    """True if this can be called and is not async."""
    return callable(value) and not is_async(value)


def require_function(name: str, value: Any) -> None:
    """Raise ValueError unless the value is None or a function that is not async."""
    if value is not None and not is_sync_function(value):
        raise ValueError(f"{name} must be {FUNCTION.description}, or None; it is {value!r}.")


def require_codes(codes: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of a profile's own codes; raise ValueError if a name is unknown or a value is no text."""
    for name, code in codes.items():
        if name not in CODES:
            raise ValueError(f"codes has no name {name!r}; {suggest(name, CODES)}")
        if not isinstance(code, str) or not code:
            raise ValueError(f"codes[{name!r}] must be a text that is not empty; it is {code!r}.")
    return dict(codes)


def dump_json(what: str, value: Any, **options: Any) -> str:
    """Return a value as JSON; raise the error of `json` with what it was that could not be written."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except TypeError as error:
        raise TypeError(f"{what} must be JSON: {error}.") from error
    except ValueError as error:
        raise ValueError(f"{what} must be JSON: {error}.") from error


def dump_named(what: str, values: Mapping[str, Any]) -> str:
    """Return named values as JSON; the error names the one that could not be written, such as an argument."""
    try:
        return json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        for name, value in values.items():
            dump_json(what.format(name), value)
        raise


def discard_awaitable(value: Any) -> bool:
    """True if the value can be awaited. A coroutine is closed, so that Python does not warn: it is not awaited here."""
    if inspect.iscoroutine(value):
        value.close()
    return inspect.isawaitable(value)


def is_true(value: Any) -> bool:
    """True only for True itself: the coroutine of a function that turned out to be async is true as well."""
    discard_awaitable(value)
    return value is True


def _are_exceptions(value: Any) -> bool:
    members = value if isinstance(value, Collection) else (None,)
    return all(isinstance(each, type) and issubclass(each, Exception) for each in members)


def _is_proof(value: Any) -> bool:
    return is_sync_function(value) and not _are_exceptions([value]) if callable(value) else _are_exceptions(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def _are_statuses(value: Any) -> bool:
    return is_sync_function(value) or (isinstance(value, Collection) and all(isinstance(each, int) for each in value))


TEXT: Final = instance_of(str, "text")
FLAG: Final = instance_of(bool, "True or False")
NUMBER: Final = instance_of(int, "a whole number")
TIMEDELTA: Final = instance_of(timedelta, "a timedelta")
FUNCTION: Final = ArgumentType(is_sync_function, "a function that is not async")
NAMES: Final = ArgumentType(_are_names, "a collection of names")
EXCEPTIONS: Final = ArgumentType(_are_exceptions, "a collection of exception classes")
PROOF: Final = ArgumentType(_is_proof, "a function that is not async, a collection of exception classes")
STATUS_FILTER: Final = ArgumentType(_are_statuses, "a function that is not async, a collection of statuses")
OBJECT: Final = "object"
AUTHORIZATION: Final = ArgumentType(
    lambda value: is_sync_function(value) or value == OBJECT, f"a function that is not async, {OBJECT!r}"
)
SESSION: Final = "session"
SESSION_THROUGH_LOGIN: Final = "session-through-login"
SESSION_SCOPES: Final = (SESSION, SESSION_THROUGH_LOGIN)
SCOPE_SOURCE: Final = ArgumentType(
    lambda value: is_sync_function(value) or (isinstance(value, str) and value in SESSION_SCOPES),
    f"a function that is not async, {SESSION!r} or {SESSION_THROUGH_LOGIN!r}",
)
