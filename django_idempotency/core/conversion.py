"""Convert the values of settings. Each function raises TypeError or ValueError that completes the setting's name."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from django_idempotency.core.fingerprint import check_secrets
from django_idempotency.core.validation import describe_choice, require_namespace, require_plain_function

E = TypeVar("E", bound=StrEnum)


def to_boolean(value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"must be True or False; it is {value!r}.")
    return value


def to_count(value: Any) -> int:
    """Return a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"must be a whole number, not negative; it is {value!r}.")
    return value


def to_duration(value: Any) -> timedelta:
    """Return a length of time; a number is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise TypeError(f"must be a timedelta or a number of seconds; it is {value!r}.")
    duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if duration < timedelta(0):
        raise ValueError(f"must not be negative; it is {value!r}.")
    return duration


def to_positive_count(value: Any) -> int:
    """Return a whole number of at least 1."""
    if to_count(value) < 1:
        raise ValueError(f"must be at least 1; it is {value!r}.")
    return to_count(value)


def to_positive_duration(value: Any) -> timedelta:
    """Return a length of time that is more than none."""
    if to_duration(value) <= timedelta(0):
        raise ValueError(f"must be longer than nothing; it is {value!r}.")
    return to_duration(value)


def to_optional_duration(value: Any) -> timedelta | None:
    """Return a length of time, or None."""
    return None if value is None else to_duration(value)


def to_one_of(kind: type[E]) -> Callable[[Any], E]:
    """Return a function that returns the member with a value."""

    def convert(value: Any) -> E:
        if value not in list(kind):
            raise ValueError(describe_choice(kind, value))
        return kind(value)

    return convert


def to_secrets(value: Any) -> Mapping[str, bytes]:
    """Return secrets by id."""
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(secret, bytes) for name, secret in pairs):
        raise TypeError("must map ids (text) to secrets (bytes); new fingerprints use the first.")
    return check_secrets(value)


def to_namespace(value: Any) -> str | Callable[[], str] | None:
    """Return a namespace, a function that returns one, or None."""
    if callable(value):
        return require_plain_function(value)
    return None if value is None else require_namespace(value)


def to_cache_alias(value: Any) -> str | None:
    """Return the alias of a cache, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise TypeError(f"must be an alias in CACHES, or None; it is {value!r}.")
    return value


def to_address(value: Any) -> str | None:
    """Return the address of a page that a person may open, or None."""
    if value is not None and (not isinstance(value, str) or not re.match(r"https?://.|/[^/]", value)):
        raise TypeError(f"must be an address that begins with https://, http:// or /, or None; it is {value!r}.")
    return value


def to_address_of_key(value: Any) -> str | None:
    """Return an address in which {key} is replaced by a downstream key, or None."""
    if value is not None and "{key}" not in (to_address(value) or ""):
        raise ValueError(f"must contain {{key}}, which is replaced by the downstream key; it is {value!r}.")
    return to_address(value)
