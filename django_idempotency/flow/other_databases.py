"""Writes to other databases inside an atomic handler: they are not rolled back with it, so a retry repeats them."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_idempotency.core.calls import Call
from django_idempotency.core.policy import OtherWrites
from django_idempotency.exceptions import Misplaced
from django_idempotency.signals import logger

_COMMENTS: Final = r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*"
_WRITE: Final = re.compile(
    rf"{_COMMENTS}(?:INSERT|UPDATE|DELETE|MERGE|REPLACE|TRUNCATE|COPY|CALL|DO|CREATE|ALTER|DROP)\b", re.I | re.S
)
_WITH: Final = re.compile(
    rf"{_COMMENTS}WITH\b.*?\b(?:INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|(?<!FOR )UPDATE)\b", re.I | re.S
)

MOST_WARNINGS: Final = 1000  # of one process, in case that operations have names of their own for each key
_warned: set[tuple[str, str]] = set()


@contextmanager
def watch_other_databases(call: Call, using: str) -> Iterator[None]:
    """Do what the policy says when this thread writes to another database than that of the record."""
    with ExitStack() as stack:
        if call.policy.other_writes is not OtherWrites.ALLOW:
            for alias in connections.settings:
                if alias == using:
                    continue
                with suppress(ImproperlyConfigured):  # its driver is not installed here, so nothing can write there
                    stack.enter_context(connections[alias].execute_wrapper(_make_watch(call, alias, using)))
        yield


def is_write(statement: object) -> bool:
    """True if this statement writes, as far as its text tells: a function that a SELECT calls is not looked into."""
    text = str(statement)
    return _WRITE.match(text) is not None or _WITH.match(text) is not None


def _make_watch(call: Call, alias: str, using: str) -> Callable[..., Any]:
    operation = call.label or call.operation

    def watch(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        if is_write(sql):
            if call.policy.other_writes is OtherWrites.REFUSE:
                raise Misplaced(_describe(operation, alias, using))
            if (operation, alias) not in _warned and len(_warned) < MOST_WARNINGS:
                _warned.add((operation, alias))
                logger.warning(_describe(operation, alias, using))
        return execute(sql, params, many, context)

    return watch


def _describe(operation: str, alias: str, using: str) -> str:
    return (
        f"The operation {operation!r} has mode='atomic' and writes to the database {alias!r}. Its own transaction is "
        f"on {using!r}: after a failure the request runs again, and so does that write. Use transaction='late' and "
        "make the write safe to repeat with request.idempotency.derive(), or allow it with other_writes='allow'."
    )
