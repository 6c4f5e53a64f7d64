"""Proves that the transaction which is about to commit is the one that began.

After a deadlock MariaDB and MySQL roll the whole transaction back and then continue in a new one. If the project's code
catches the error, a COMMIT would store the response without the writes that it is about.
"""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from django.db import Error, OperationalError, connections

from django_idempotency.store.dialects import DIALECTS
from django_idempotency.store.limits import may_repeat

# Deadlock, snapshot conflict and full lock table: the server has rolled back the whole transaction.
_ROLLED_BACK: Final = frozenset({1213, 1020, 1206})
_NO_SUCH_SAVEPOINT: Final = 1305


class RolledBack(OperationalError):
    """The database rolled the transaction back after a deadlock, and the code that caught the error continued."""


class Replaced(Exception):
    """The transaction ended before its COMMIT, for example through DDL: its writes may or may not be stored."""


class Continuity:
    """One transaction under proof. It costs a savepoint and its release, and nothing on databases that need no proof.

    A savepoint ends with the transaction in which it was made. Errors are watched as well, because the project's own
    `atomic()` may replace the error that says what happened, and a Galera node may keep the savepoint.
    """

    __slots__ = ("_connection", "_ended_by", "_needed", "_savepoint")

    def __init__(self, using: str) -> None:
        self._connection = connections[using]
        self._needed = DIALECTS[self._connection.vendor].continues_after_deadlock
        self._savepoint: str | None = None
        self._ended_by: Error | None = None

    def __enter__(self) -> "Continuity":
        if self._needed:
            self._savepoint = self._connection.savepoint()
            self._connection.execute_wrappers.append(self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # the work never began
            self._connection.execute_wrappers.remove(self._watch)
        if isinstance(error, Error) and not may_repeat(error):
            self.check()

    def check(self) -> None:
        """Raise RolledBack if a deadlock ended the transaction."""
        if self._ended_by is not None:
            raise RolledBack(RolledBack.__doc__) from self._ended_by

    def prove(self) -> None:
        """Raise unless the transaction is still the one that began."""
        self.check()
        if self._savepoint is None:
            return
        try:
            self._connection.savepoint_commit(self._savepoint)
        except OperationalError as error:
            if error.args[:1] == (_NO_SUCH_SAVEPOINT,):
                raise Replaced(Replaced.__doc__) from error
            raise

    def _watch(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        try:
            return execute(sql, params, many, context)
        except Error as error:
            if error.args and error.args[0] in _ROLLED_BACK:
                self._ended_by = error
            raise
