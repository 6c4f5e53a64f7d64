"""A corpus is one test, which names each case that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any


def all_as_said(cases: Iterable[tuple[object, object, object]]) -> bool:
    """Each case is what it is called, what was found, and what should have been."""
    wrong = [f"{name}: {found!r}, not {expected!r}" for name, found, expected in cases if found != expected]
    assert not wrong, "\n".join(wrong)
    return True


def complaint(make: Callable[..., Any], arguments: dict[str, Any]) -> tuple[type[Exception] | None, str]:
    """The kind of the error that the arguments lead to, and the name that its message begins with."""
    try:
        make(**arguments)
    except (TypeError, ValueError) as error:
        return type(error), "".join(takewhile(str.isidentifier, str(error)))
    return None, ""
