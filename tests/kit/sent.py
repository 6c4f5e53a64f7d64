"""The statements that the package's own code sent to PostgreSQL, each text once, to be checked for other engines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.kit.citus import Analyser

PACKAGE, OTHERS = "django_idempotency", {"tests", "testproject", "benchmarks"}
COMMANDS = ("SELECT", "INSERT", "UPDATE", "DELETE")
LAYOUT = "django_idempotency.store.layout"  # what changes the layout runs on the engine that it is written for

_known: set[str] = set()
_fresh: list[tuple[str, Any]] = []


def watch(connection: BaseDatabaseWrapper, **sent: Any) -> None:
    """Receive `connection_created`. First in the list: who adds a wrapper for a while takes the last one away."""
    if connection.vendor == "postgresql" and _note not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _note)


def _note(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    text = str(sql)
    if text not in _known and "idempotency_" in text and text.lstrip().startswith(COMMANDS) and _is_from_package():
        _known.add(text)
        _fresh.append((text, params))
    return execute(sql, params, many, context)


def _is_from_package() -> bool:
    """True if the package is nearer on the stack than a test or a project, and does not change the layout."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        top, _, _ = name.partition(".")
        if name == LAYOUT:
            return False
        if top == PACKAGE or top in OTHERS:
            return top == PACKAGE
        frame = frame.f_back
    return False


def has_fresh() -> bool:
    """True if there are texts that `take_refused` has not seen."""
    return bool(_fresh)


def take_refused() -> dict[str, set[str]]:
    """Return which of the new texts Citus would refuse, and why. They are asked about once."""
    taken, _fresh[:] = list(_fresh), []
    return why_refused([compose(text, params) for text, params in taken])


def compose(text: str, params: Any) -> str:
    """Return the statement with its parameters in it, as PostgreSQL would get it."""
    operations: Any = connection.ops
    return str(operations.compose_sql(text, params))


def why_refused(statements: list[str]) -> dict[str, set[str]]:
    """Return the refused ones, on a connection of its own: the caller's may be in any state."""
    other = connection.copy("analyser")
    with closing(other), other.cursor() as cursor:
        cursor.execute("BEGIN")
        analyser = Analyser(cursor)
        reasons = {statement: analyser.why_refused(statement) for statement in statements}
        cursor.execute("ROLLBACK")
    return {statement: why for statement, why in reasons.items() if why}
