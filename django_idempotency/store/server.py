"""What a database server says about itself: whether it takes writes, how durable a commit is, and who follows it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connections

from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.limits import limited

_SETTINGS: Final = {
    "postgresql": [
        """
        SELECT name, setting FROM pg_settings
        WHERE name IN ('transaction_read_only', 'in_hot_standby', 'synchronous_commit', 'synchronous_standby_names',
            'client_connection_check_interval')
        """
    ],
    "mysql": [
        """
        SHOW VARIABLES WHERE Variable_name IN ('read_only', 'tx_read_only', 'transaction_read_only',
            'innodb_flush_log_at_trx_commit', 'wsrep_on', 'wsrep_sync_wait', 'max_allowed_packet')
        """,
        "SHOW STATUS LIKE 'wsrep_local_state_comment'",
    ],
}
# A subscriber of logical replication is no standby, and neither is a backup that is being taken.
_STANDBYS: Final = """
    SELECT COUNT(*) FROM pg_stat_replication AS follower
    WHERE state IS DISTINCT FROM 'backup' AND NOT EXISTS (
        SELECT 1 FROM pg_replication_slots AS slot WHERE slot.active_pid = follower.pid AND slot.slot_type = 'logical')
"""
# What speaks PostgreSQL's or MySQL's protocol and names itself in its version.
_LOOK_ALIKES: Final = {"cockroachdb": "CockroachDB", "-yb-": "YugabyteDB", "tidb": "TiDB"}
_BESIDES_BODY: Final = 64 * 1024  # bytes of a statement: headers, arguments and the columns about the request
_LIMIT_SECONDS: Final = 2.0
_CITUS: Final = "SELECT COUNT(*) FROM pg_extension WHERE extname = 'citus'"


@dataclass(frozen=True, slots=True)
class Server:
    """One server as it was asked. Settings are named as the server names them, with values in lower case."""

    look_alike: str = ""  # the product, if it is one on which nothing was tested
    settings: Mapping[str, str] = field(default_factory=dict)
    standbys: int = 0
    keeps_unique: bool = True
    has_unique_id: bool = True


def ask_server(using: str) -> Server:
    """Ask each thing with one query. A look-alike is asked for nothing else: it may not know the question."""
    connection = connections[using]
    if connection.vendor not in _SETTINGS:
        return Server()
    is_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        look_alike = name_look_alike(_ask(cursor, "SELECT VERSION()"))
        if look_alike:
            return Server(look_alike)
        unique = _find_unique(connection.introspection.get_constraints(cursor, IdempotencyKey._meta.db_table))
        return Server(
            look_alike="Citus" if is_postgresql and _ask(cursor, _CITUS) else "",
            settings=_ask_settings(cursor, _SETTINGS[connection.vendor]),
            standbys=_ask(cursor, _STANDBYS) if is_postgresql else 0,
            # A column besides, such as that of a partition, would let one key have two records.
            keeps_unique=any(columns and columns <= {"id", "scope", "key"} for columns in unique),
            has_unique_id={"id"} in unique,
        )


def statement_size(body: int) -> int:
    """Return the longest statement that stores a body of so many bytes: a driver may write two for each."""
    return 2 * body + _BESIDES_BODY


def takes_body(size: int, using: str) -> bool:
    """True unless the server would refuse the statement that stores a body of so many bytes, and end the connection."""
    if connections[using].vendor != "mysql":
        return True
    try:
        with limited(using, _LIMIT_SECONDS), connections[using].cursor() as cursor:
            return bool(statement_size(size) <= _ask(cursor, "SELECT @@max_allowed_packet"))
    except StoreUnavailable:
        return True  # storing the response fails too, and whoever does it knows what that means


def read_settings(using: str) -> dict[str, str]:
    """Return what matters of the server's settings: before there are tables, too."""
    with connections[using].cursor() as cursor:
        return _ask_settings(cursor, _SETTINGS.get(connections[using].vendor, []))


def name_look_alike(version: str) -> str:
    """Return the product that answers in the place of PostgreSQL, MariaDB or MySQL; empty if it is one of these."""
    return next((name for mark, name in _LOOK_ALIKES.items() if mark in version.lower()), "")


def _ask(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchone()[0]


def _ask_settings(cursor: Any, queries: Iterable[str]) -> dict[str, str]:
    settings = dict[str, str]()
    for query in queries:
        cursor.execute(query)
        settings |= {name: str(value).lower() for name, value in cursor.fetchall()}
    return settings


def _find_unique(constraints: Mapping[str, Mapping[str, Any]]) -> list[set[str]]:
    return [set(each["columns"] or ()) for each in constraints.values() if each["unique"]]
