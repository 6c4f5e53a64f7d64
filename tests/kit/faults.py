"""One fault at one call of the driver: an error, or a connection that ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NoReturn

import pytest
from django.db import OperationalError, connection, connections

from django_idempotency.store.connecting import descriptor
from tests.kit.databases import elsewhere, is_gone, kill
from tests.kit.threads import wait_until

MADE_BY_DJANGO: Final = ("_commit", "_rollback", "_set_autocommit")  # they do not pass the wrapper of statements
NOWHERE: Final = {"HOST": "127.0.0.1", "PORT": "1"}


class Broke(OperationalError):
    """The error of a statement whose connection lives on."""


class Trouble(Enum):
    """What goes wrong."""

    ERROR = "an error"
    TERMINATED = "the server ends the session and says so"
    CUT = "the connection breaks without a word"
    GONE = "the connection breaks, and there is no other until the request has ended"


class Moment(Enum):
    """When it goes wrong, seen from the statement."""

    BEFORE = "before it is sent"
    AFTER = "after it ran, and its answer is lost"


@dataclass(frozen=True)
class Kind:
    trouble: Trouble
    moment: Moment

    def __str__(self) -> str:
        return f"{self.trouble.name} {self.moment.name}".lower()


# SQLite has no server that could go away. On MariaDB a session that the server ends looks like one that is cut.
TELLING: Final = {"sqlite": [Trouble.ERROR], "mysql": [Trouble.ERROR, Trouble.CUT, Trouble.GONE]}
TROUBLES: Final = TELLING.get(connection.vendor, list(Trouble))
# All but an error end a session, and wait until the server no longer has it.
KINDS: Final = [
    pytest.param(Kind(trouble, moment), marks=[] if trouble is Trouble.ERROR else pytest.mark.direct)
    for trouble in TROUBLES
    for moment in Moment
]


@dataclass
class Fault:
    """Strikes once, at the nth call of this connection."""

    kind: Kind
    nth: int
    seen: int = 0
    struck: str = ""

    def __str__(self) -> str:
        return f"{self.kind} call {self.nth}, {self.struck[:60]}"

    def statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Django's wrapper of each statement."""
        return self.call(partial(execute, sql, params, many, context), sql, context["connection"])

    def call(self, go: Callable[[], Any], name: str, wrapper: Any) -> Any:
        if self.struck or not self._may_strike(name):
            return go()
        self.seen += 1
        if self.seen != self.nth:
            return go()
        self.struck = name
        if self.kind.moment is Moment.AFTER:
            go()
        if self.kind.trouble is Trouble.ERROR:
            raise Broke
        end_session(self.kind.trouble, wrapper)
        return go() if self.kind.moment is Moment.BEFORE else hear_nothing(wrapper)

    def _may_strike(self, name: str) -> bool:
        """No server refuses to roll back. SQLite opens a transaction or does not: it cannot fail after that."""
        if self.kind.trouble is not Trouble.ERROR:
            return True
        return name not in MADE_BY_DJANGO[1:] and not (name.startswith("BEGIN") and self.kind.moment is Moment.AFTER)


def end_session(how: Trouble, wrapper: Any) -> None:
    """End the session under a connection, and wait until the server has rolled back and let its locks go."""
    raw = wrapper.connection
    if raw is None:
        return
    session = raw.info.backend_pid if wrapper.vendor == "postgresql" else raw.thread_id()
    if how is Trouble.TERMINATED:
        elsewhere(lambda: kill(session))
        return
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor(raw))) as copy:
        copy.shutdown(socket.SHUT_RDWR)
    elsewhere(lambda: wait_until(lambda: is_gone(session)))
    if how is Trouble.GONE:
        wrapper.settings_dict.update(NOWHERE)


def hear_nothing(wrapper: Any) -> NoReturn:
    """Fail as the driver does that waits for an answer on a connection that has ended."""
    with wrapper.wrap_database_errors, wrapper.connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    raise AssertionError("the connection works")


@contextmanager
def under_fire(fault: Fault) -> Iterator[None]:
    """Calls of this connection meet the fault; at the end there is a new connection, to a server that answers."""
    wrapper: Any = connections["default"]
    server = dict(wrapper.settings_dict)
    for name in MADE_BY_DJANGO:
        setattr(wrapper, name, _guarded(fault, name, wrapper))
    try:
        with wrapper.execute_wrapper(fault.statement):
            yield
    finally:
        for name in MADE_BY_DJANGO:
            delattr(wrapper, name)
        wrapper.settings_dict.update(server)
        wrapper.close()


def _guarded(fault: Fault, name: str, wrapper: Any) -> Callable[..., Any]:
    own = getattr(wrapper, name)

    def guarded(*arguments: Any) -> Any:
        if wrapper.connection is None:
            return own(*arguments)
        return fault.call(partial(own, *arguments), name, wrapper)

    return guarded
