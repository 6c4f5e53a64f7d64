"""Finds out whether a connection pooler stands before PostgreSQL, and what a pooler in transaction mode would break."""

from django.db import connections

_PREPARED = "prepared statements (prepare_threshold)"
_CURSORS = "server-side cursors (DISABLE_SERVER_SIDE_CURSORS is not set)"


def find_unsafe_options(using: str) -> tuple[str, ...]:
    """Return what this connection uses that needs a session of its own; empty if no pooler stands in between.

    A pooler makes up the process id that it sends at login; the server itself knows its own.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        return ()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (served_by,) = cursor.fetchone()
        raw = connection.connection
        if raw.info.backend_pid == served_by:
            return ()
        prepares = getattr(raw, "prepare_threshold", None) is not None
    in_use = {_PREPARED: prepares, _CURSORS: not connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS", False)}
    return tuple(option for option, used in in_use.items() if used)
