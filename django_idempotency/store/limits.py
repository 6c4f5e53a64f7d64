"""How long the store may take, and what its failures are called."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from django.db import Error, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.exceptions import InsideTransaction, StoreUnavailable
from django_idempotency.store.connecting import close, descriptor, discard, open_connection
from django_idempotency.store.dialects import DIALECTS
from django_idempotency.store.watchdog import WATCHDOG, Deadline

T = TypeVar("T")

TRIES: Final = 3
_AGAIN_STATES: Final = frozenset({"40001", "40P01", "55P03"})
_LOST_STATES: Final = frozenset({"57P01", "57P02", "57P03"})
_AGAIN_CODES: Final = frozenset({1020, 1205, 1213})  # snapshot conflict, lock wait, deadlock
CLOSED_INSIDE: Final = (
    "The connection was closed inside the transaction, which was rolled back: the code that ran called "
    "close_old_connections() or connection.close(). Call them outside the transaction."
)
MIGRATE: Final = "A table or a column is missing: run `manage.py migrate`."
_NO_TABLE_STATES: Final = frozenset({"42P01", "42703"})  # nor a column of it
_NO_TABLE_CODES: Final = frozenset({1146, 1054})
_NO_TABLE_TEXTS: Final = ("no such table", "no such column", "has no column")  # SQLite's, which has no code
_SERVERS_SHARE: Final = 0.8  # the server gives up waiting first: the watchdog would cost the connection


def in_transaction(using: str) -> bool:
    """In `atomic()`, or because autocommit is off. Opens no connection: until there is one, the settings know."""
    connection = connections[using]
    autocommit = connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit
    return connection.in_atomic_block or not autocommit


def inside_test_case(using: str) -> bool:
    """True if the open transaction is a test case's. Raise InsideTransaction if it is the project's own."""
    if not in_transaction(using):
        return False
    if any(getattr(block, "_from_testcase", False) for block in connections[using].atomic_blocks[-1:]):
        return True
    raise InsideTransaction


class limited:
    """Whatever the database fails with in here, and however long it hangs, is StoreUnavailable."""

    __slots__ = ("bound", "connection", "seconds")

    def __init__(self, using: str, seconds: float) -> None:
        self.connection, self.seconds = connections[using], seconds

    def __enter__(self) -> None:
        try:
            deadline = monotonic() + self.seconds
            _reopen(self.connection, deadline)
            self.bound = _bound(self.connection, max(deadline - monotonic(), 0.01))
            self.bound.__enter__()
        except Error as error:
            raise StoreUnavailable from error

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.bound.__exit__(None, None, None)
        if isinstance(error, Error):
            failure = StoreUnavailable()
            if lacks_table(error):
                failure.add_note(MIGRATE)
            raise failure from error
        if getattr(self.bound, "has_fired", False):
            self._drop_cut(error)

    def _drop_cut(self, error: BaseException | None) -> None:
        """The process stood still, and the answer had arrived before the watchdog cut the socket."""
        if not self.connection.in_atomic_block:
            discard(self.connection)
        elif error is None:
            raise StoreUnavailable from InterfaceError("The connection was cut inside the transaction.")


def repeated(call: Callable[[float], T], using: str, seconds: float) -> T:
    """Run a claim a few times within its limit: it carries its own token, so a repeat finds what an earlier try did."""
    deadline, used = monotonic() + seconds, None
    for remaining in reversed(range(TRIES)):
        left = max(deadline - monotonic(), 0.01)
        try:
            with limited(using, left):
                used = connections[using].connection
                return call(left * _SERVERS_SHARE)
        except StoreUnavailable as error:
            drop_broken(using)
            if not remaining or monotonic() >= deadline or not (may_repeat(error) or was_lost(error, using, used)):
                raise
            sleep(random.uniform(0, min(0.05, max(deadline - monotonic(), 0))))  # noqa: S311 - jitter, not a secret
    raise AssertionError("unreachable")  # pragma: no cover


def may_repeat(error: BaseException) -> bool:
    """A serialization failure, a deadlock or a lock wait that gave up: the whole transaction may run again."""
    for each in _causes(error):
        if getattr(each, "sqlstate", None) in _AGAIN_STATES or (each.args and each.args[0] in _AGAIN_CODES):
            return True
        if getattr(each, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            return True
    return False


def was_lost(error: BaseException, using: str, used: Any) -> bool:
    """The connection went away under the statement, so a fresh one may still answer.

    `used` is the driver's connection as it was before: at the end of a transaction Django connects again by itself.
    """
    if any(getattr(each, "sqlstate", None) in _LOST_STATES for each in _causes(error)):
        return True
    current = connections[using].connection
    return current is None or current is not used


def connect(using: str, seconds: float) -> BaseDatabaseWrapper:
    """Have a connection within the limit."""
    connection = connections[using]
    try:
        _reopen(connection, monotonic() + seconds)
    except Error as error:
        raise StoreUnavailable from error
    return connection


def lacks_table(error: BaseException) -> bool:
    """True if the store answered that a table or a column does not exist: the migrations were not run."""
    for each in _causes(error):
        if getattr(each, "sqlstate", None) in _NO_TABLE_STATES or (each.args and each.args[0] in _NO_TABLE_CODES):
            return True
        if any(text in str(each) for text in _NO_TABLE_TEXTS):
            return True
    return False


def drop_broken(using: str) -> None:
    """Forget a connection that no longer works, so that the next statement opens another."""
    connection = connections[using]
    raw = connection.connection
    # A driver may reconnect when it is asked whether it is usable, and would lose what Django set up on the session.
    if raw is not None and not connection.in_atomic_block and (_closed(raw) or not connection.is_usable()):
        discard(connection)


def name_error(error: Exception) -> str:
    """Return the class and the first line of what the database said; what follows may quote a row."""
    said = error.__cause__ if isinstance(error, StoreUnavailable) and error.__cause__ else error
    hint = f" {MIGRATE}" if lacks_table(error) else ""
    return f"{type(said).__name__}: {next(iter(str(said).splitlines()), '')}{hint}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__


def _bound(connection: BaseDatabaseWrapper, seconds: float) -> AbstractContextManager[Deadline | None]:
    if not DIALECTS[connection.vendor].has_server:
        return _patience(connection, seconds)
    return WATCHDOG.guard(descriptor(connection.connection), seconds)


@contextmanager
def _patience(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """SQLite waits for a lock itself."""
    configured = connection.settings_dict["OPTIONS"].get("timeout", 5.0)
    if configured <= seconds:
        yield
        return
    connection.connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    try:
        yield
    finally:
        connection.connection.execute(f"PRAGMA busy_timeout = {int(configured * 1000)}")


def _reopen(connection: BaseDatabaseWrapper, deadline: float) -> None:
    """A connection that its driver knows to be closed is no use; inside a transaction another would be a lie."""
    if connection.connection is not None and _closed(connection.connection):
        if connection.in_atomic_block:
            raise InterfaceError("The connection was lost inside the transaction.")
        close(connection)
    if _is_to_be_checked(connection) and not connection.in_atomic_block:
        # Django would ask inside the first statement, and then connect again without any limit.
        with _bound(connection, max(deadline - monotonic(), 0.01)) as bound:
            connection.close_if_health_check_failed()
        if getattr(bound, "has_fired", False):
            discard(connection)
    if connection.connection is None:
        open_connection(connection, deadline - monotonic())


def _is_to_be_checked(connection: BaseDatabaseWrapper) -> bool:
    """True if Django checks the connection before its next statement: once a request, with CONN_HEALTH_CHECKS."""
    wrapper: Any = connection  # its type has not these two
    return connection.connection is not None and wrapper.health_check_enabled and not wrapper.health_check_done


def _closed(raw: Any) -> bool:
    return bool(getattr(raw, "closed", not getattr(raw, "open", True)))
