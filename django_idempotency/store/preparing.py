"""Prepared statements for the few statements that most requests execute, if IDEMPOTENCY["PREPARED_STATEMENTS"] is True.

Whatever the project's OPTIONS say, nothing else is prepared. Behind a connection pooler nothing is: a server session is
shared there, and a prepared name can reach another client's statement.
"""

from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.signals import logger

_is_direct: Final[WeakKeyDictionary[Any, bool]] = WeakKeyDictionary()


def open_preparing_cursor(connection: BaseDatabaseWrapper) -> Any:
    """Return a cursor that prepares what it executes, wrapped as Django wraps its own.

    While Django logs queries it is Django's own cursor: a prepared one has no text to log.
    """
    if connection.queries_logged or not _keeps_prepared_statements(connection):
        return connection.cursor()
    connection.validate_thread_sharing()
    wrapper: Any = connection
    return wrapper.make_cursor(_cursor_class(wrapper.Database)(wrapper.connection))


@cache
def _cursor_class(psycopg: Any) -> Any:
    class PreparingCursor(psycopg.Cursor):  # type: ignore[misc] # the driver's, which is not imported
        """Prepares each statement the first time. The connection's own threshold applies to every other cursor."""

        def execute(self, query: Any, params: Any = None) -> Any:
            threshold, self.connection.prepare_threshold = self.connection.prepare_threshold, 0
            try:
                return super().execute(query, params)
            finally:
                self.connection.prepare_threshold = threshold

    return PreparingCursor


def _keeps_prepared_statements(connection: BaseDatabaseWrapper) -> bool:
    """True unless a pooler stands in between, or psycopg is older than 3. Each connection is asked once."""
    raw = connection.connection
    if not hasattr(raw, "prepare_threshold"):
        return False
    if raw not in _is_direct:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            # A pooler makes up the process id that it sends at login.
            _is_direct[raw] = cursor.fetchone()[0] == raw.info.backend_pid
        if not _is_direct[raw]:
            logger.warning("Nothing is prepared on %r: a connection pooler stands before it.", connection.alias)
    return _is_direct[raw]
