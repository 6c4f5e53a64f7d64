"""Everything in which the databases differ, and the statements that are written once for all of them.

A statement is a template with words in braces, rendered once per vendor when its module is imported. To support another
database, add its dialect here; its column types are in `fields.py`.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import Error, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.conf import conf
from django_idempotency.core.refs import Ref
from django_idempotency.core.states import Status
from django_idempotency.store.preparing import open_preparing_cursor

T = TypeVar("T")

_SQLITE_NOW: Final = "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'now'{})"
_DUPLICATE_ENTRY: Final = 1062
_REPEATS_A_VALUE: Final = frozenset({_DUPLICATE_ENTRY, 1292, 1366})  # of MariaDB's and MySQL's errors
_WORD: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one vendor spells what the statements need, and how it behaves where that matters."""

    vendor: str
    now: str
    later: str  # {} is a number of seconds or NULL; it goes into no CASE and no COALESCE, where Citus refuses a clock
    left: str  # {} is a column; seconds until then
    minute: str  # {} is a time; the minute it falls into
    quote: str
    or_nothing: str  # after an INSERT: ignore a row that exists; empty if the driver raises instead
    or_add: str  # after an INSERT: add {}, a column, to that of the row that exists
    among: str  # a condition: the column before it is one of the parameter {}
    try_lock: str  # takes the lock {}, a number, until the transaction ends; false if another transaction has it
    limit_wait: str  # the text {}, in an INSERT that waits for locks only as long as the parameter `limit` says
    hex_list: Callable[[list[str]], Any] | None = None  # of identifiers; None: the driver takes them as they are
    reads_before_insert: bool = False  # a bare INSERT would wait behind any open write transaction
    compares_times_as_text: bool = False
    has_server: bool = True
    continues_after_deadlock: bool = False  # it rolls the transaction back and accepts statements for a new one

    def render(self, template: str) -> str:
        return _WORD.sub(lambda match: self._word(match[1]), template).strip()

    def _word(self, text: str) -> str:
        match text.split(maxsplit=2):
            case ["now"]:
                return self.now
            case ["now", "+", seconds]:
                return self.later.format(seconds)
            case ["minute", "+", seconds]:
                return self.minute.format(self.later.format(seconds))
            case ["left", column]:
                return self.left.format(column)
            case ["or", "nothing"]:
                return self.or_nothing
            case ["or", "add", column]:
                return self.or_add.format(column)
            case ["among", parameter]:
                return self.among.format(parameter)
            case ["try", "lock", number]:
                return self.try_lock.format(number)
            case ["limit", "wait", value]:
                return self.limit_wait.format(value)
            case [name]:
                return self.quote + name + self.quote
        raise AssertionError(text)  # pragma: no cover - every template is rendered when its module is imported


DIALECTS: Final = {
    "postgresql": Dialect(
        vendor="postgresql",
        now="STATEMENT_TIMESTAMP()",
        # Not `timestamptz + interval`, which is STABLE: Citus refuses a column inside it. To a microsecond the same.
        later="TO_TIMESTAMP(DATE_PART('epoch', STATEMENT_TIMESTAMP()) + ({}))",
        left="DATE_PART('epoch', {} - STATEMENT_TIMESTAMP())",
        minute="DATE_TRUNC('minute', {})",
        quote='"',
        or_nothing="ON CONFLICT DO NOTHING",  # untargeted: either of two unique constraints may be hit
        or_add="ON CONFLICT (minute, operation, outcome) DO UPDATE SET {0} = idempotency_count.{0} + EXCLUDED.{0}",
        among="= ANY(%({})s)",
        try_lock="PG_TRY_ADVISORY_XACT_LOCK({})",
        # In the same statement, the limit costs neither a round trip nor a transaction. The server computes the values
        # before it waits for a lock.
        limit_wait="""
            {} || LEFT(SET_CONFIG('lock_timeout', COALESCE(%(limit)s::text, CURRENT_SETTING('lock_timeout')), TRUE), 0)
        """,
    ),
    "sqlite": Dialect(
        vendor="sqlite",
        now=_SQLITE_NOW.format(""),
        later=_SQLITE_NOW.format(", ({}) || ' seconds'"),
        # Milliseconds: SQLite's clock is no finer, and a Julian day as a float is coarser.
        left="ROUND((JULIANDAY({}) - JULIANDAY('now')) * 86400.0, 3)",
        minute="STRFTIME('%%Y-%%m-%%d %%H:%%M:00', {})",
        quote='"',
        or_nothing="ON CONFLICT DO NOTHING",
        or_add="ON CONFLICT (minute, operation, outcome) DO UPDATE SET {0} = idempotency_count.{0} + EXCLUDED.{0}",
        among="IN (SELECT value FROM JSON_EACH(%({})s))",
        try_lock="TRUE",
        limit_wait="{}",
        hex_list=json.dumps,
        reads_before_insert=True,
        compares_times_as_text=True,
        has_server=False,
    ),
    "mysql": Dialect(
        vendor="mysql",
        now="UTC_TIMESTAMP(6)",
        later="UTC_TIMESTAMP(6) + INTERVAL {} SECOND",
        left="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {}) / 1000000",
        minute="DATE_FORMAT({}, '%%Y-%%m-%%d %%H:%%i:00')",
        quote="`",
        or_nothing="",
        or_add="ON DUPLICATE KEY UPDATE {0} = {0} + VALUES({0})",
        among="IN %({})s",  # the driver expands a tuple
        try_lock="TRUE",
        limit_wait="{}",
        hex_list=tuple,
        continues_after_deadlock=True,
    ),
}


class Statement:
    """One constant text per vendor, and the rows of the transition table that it carries out."""

    def __init__(self, cites: str, template: str, *, hot: bool = False) -> None:
        self.cites = tuple(cites.split())
        self._hot = hot  # most requests execute it: it may be prepared
        self._texts = {vendor: dialect.render(template) for vendor, dialect in DIALECTS.items()}

    def text(self, vendor: str) -> str:
        return self._texts[vendor]

    def apply(self, ref: Ref, **values: Any) -> bool:
        """Execute for one record. True if the record met the statement's conditions and was changed."""
        values["scope"], values["id"] = ref.scope, ref.id
        return self._execute(connections[ref.using], values, _count_rows) == 1

    def insert(self, using: str, values: dict[str, Any], seconds: float | None = None) -> bool:
        """Execute an INSERT. False if the row exists. `seconds` bounds the wait for another transaction's lock."""
        connection = connections[using]
        values["limit"] = None if seconds is None else f"{int(seconds * 1000)}ms"
        try:
            return self._execute(connection, values, _count_rows, seconds) == 1
        except IntegrityError as error:
            if connection.vendor == "mysql" and error.args[0] == _DUPLICATE_ENTRY:
                return False
            raise

    def run(self, using: str, **values: Any) -> int:
        """Execute, and return how many rows it changed."""
        return self._execute(connections[using], values, _count_rows)

    def rows(self, using: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute, and return the rows it read."""
        return self._execute(connections[using], values, _fetch_rows)

    def _execute(
        self,
        connection: BaseDatabaseWrapper,
        values: dict[str, Any],
        read: Callable[[Any], T],
        seconds: float | None = None,
    ) -> T:
        """Execute, and return what `read` makes of the cursor.

        Errors are raised without the values of the row: a project logs them, and they hold the key.
        """
        text = _bound(self._texts[connection.vendor], connection, seconds)
        try:
            with self._open_cursor(connection) as cursor:
                cursor.execute(text, adapt(connection.vendor, values))
                return read(cursor)
        except Error as error:
            _remove_values(error)
            if error.__cause__ is not None:
                _remove_values(error.__cause__)
            raise

    def _open_cursor(self, connection: BaseDatabaseWrapper) -> Any:
        if self._hot and conf.PREPARED_STATEMENTS and connection.vendor == "postgresql":
            return open_preparing_cursor(connection)
        return connection.cursor()


def _count_rows(cursor: Any) -> int:
    return int(cursor.rowcount)


def _fetch_rows(cursor: Any) -> list[tuple[Any, ...]]:
    return list(cursor.fetchall())


def _remove_values(error: BaseException) -> None:
    diagnosis: Any = getattr(error, "diag", None) or getattr(error.__cause__, "diag", None)
    if getattr(diagnosis, "message_detail", None):  # PostgreSQL: "Failing row contains (...)", "Key (...)=(...)"
        error.args = (diagnosis.message_primary,)
    elif len(error.args) == 2 and error.args[0] in _REPEATS_A_VALUE:
        error.args = (error.args[0], re.sub(r"'.*'", "'...'", str(error.args[1])))


def _bound(text: str, connection: BaseDatabaseWrapper, seconds: float | None) -> str:
    """Limit the wait on MariaDB, in whole seconds, rounded down: a server that waits for longer than its client inserts
    a row that no attempt owns.
    """
    if seconds is None or not getattr(connection, "mysql_is_mariadb", False):
        return text
    return f"SET STATEMENT innodb_lock_wait_timeout = {int(seconds)} FOR {text}"


def among_states(states: Iterable[Status]) -> str:
    """Return the condition that a column holds one of these states, for a template."""
    names = ", ".join(sorted(f"'{state.value}'" for state in states))
    return f"IN ({names})"


def dialect_of(using: str) -> Dialect:
    """Return the dialect of a database."""
    return DIALECTS[connections[using].vendor]


def place_in_id_order(record: UUID, using: str) -> float:
    """Return where an id is in the order in which the database sorts all ids, from 0 to 1."""
    connection = connections[using]
    # MariaDB's own type compares the last group first.
    reversed_groups = connection.vendor == "mysql" and connection.features.has_native_uuid_field
    return (record.node if reversed_groups else record.int >> 80) / 2**48


def adapt(vendor: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as the vendor's driver takes them. Only identifiers differ: some drivers need their hex."""
    hex_list = DIALECTS[vendor].hex_list
    if hex_list is None:
        return values
    return {name: _adapt(value, hex_list) for name, value in values.items()}


def _adapt(value: Any, hex_list: Callable[[list[str]], Any]) -> Any:
    if isinstance(value, UUID):
        return value.hex
    return hex_list([each.hex for each in value]) if isinstance(value, list) else value
