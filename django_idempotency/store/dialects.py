"""The few words in which the databases differ.

A statement is written once, with these words in braces, and rendered once per vendor. Another database is supported
by adding its dialect here and a claim in `claims.py`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connections

from django_idempotency.core.identity import Ref

_SQLITE_NOW: Final = "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'now'{})"
_WORD: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one vendor says now, later, how long until, and a reserved word."""

    vendor: str
    now: str
    later: str  # {} is a number of seconds
    left: str  # {} is a column; seconds until then
    minute: str  # {} is a time; the minute it falls into
    quote: str
    uuid: Callable[[UUID], Any] | None  # None: the driver takes identifiers, and lists of them, as they are
    uuids: Callable[[list[UUID]], Any] | None

    def render(self, template: str) -> str:
        return _WORD.sub(lambda match: self._word(match[1]), template).strip()

    def _word(self, text: str) -> str:
        match text.split(maxsplit=1):
            case ["now"]:
                return self.now
            case ["now", rest]:
                return self.later.format(rest.removeprefix("+ "))
            case ["minute", rest]:
                return self.minute.format(self.later.format(rest.removeprefix("+ ")))
            case ["left", column]:
                return self.left.format(column)
            case [name]:
                return self.quote + name + self.quote
        raise AssertionError(text)  # pragma: no cover - every template is rendered when its module is imported


DIALECTS: Final = {
    "postgresql": Dialect(
        vendor="postgresql",
        now="STATEMENT_TIMESTAMP()",
        later="STATEMENT_TIMESTAMP() + MAKE_INTERVAL(secs => {})",
        left="EXTRACT(EPOCH FROM {} - STATEMENT_TIMESTAMP())::float8",
        minute="DATE_TRUNC('minute', {})",
        quote='"',
        uuid=None,
        uuids=None,
    ),
    "sqlite": Dialect(
        vendor="sqlite",
        now=_SQLITE_NOW.format(""),
        later=_SQLITE_NOW.format(", ({}) || ' seconds'"),
        left="ROUND((JULIANDAY({}) - JULIANDAY('now')) * 86400.0, 3)",  # its clock has no more, a float of days less
        minute="STRFTIME('%%Y-%%m-%%d %%H:%%M:00', {})",
        quote='"',
        uuid=lambda value: value.hex,
        uuids=lambda values: json.dumps([value.hex for value in values]),
    ),
    "mysql": Dialect(
        vendor="mysql",
        now="UTC_TIMESTAMP(6)",
        later="UTC_TIMESTAMP(6) + INTERVAL {} SECOND",
        left="TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), {}) / 1000000",
        minute="DATE_FORMAT({}, '%%Y-%%m-%%d %%H:%%i:00')",
        quote="`",
        uuid=lambda value: value.hex,
        uuids=lambda values: tuple(value.hex for value in values),  # the driver expands a tuple after IN
    ),
}


class Statement:
    """One constant text per vendor, and the rows of the transition table that it carries out."""

    def __init__(self, cites: str, template: str | Mapping[str, str]) -> None:
        self.cites = tuple(cites.split())
        templates = dict.fromkeys(DIALECTS, template) if isinstance(template, str) else template
        self._texts = {vendor: dialect.render(templates[vendor]) for vendor, dialect in DIALECTS.items()}

    def text(self, vendor: str) -> str:
        return self._texts[vendor]

    def apply(self, ref: Ref, **values: Any) -> bool:
        """Execute for one record. True if the record met the statement's conditions and was changed."""
        return self.run(ref.using, scope=ref.scope, id=ref.id, **values) == 1

    def run(self, using: str, **values: Any) -> int:
        """Execute, and return how many rows it changed."""
        connection = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(self._texts[connection.vendor], adapted(connection.vendor, values))
            return int(cursor.rowcount)

    def rows(self, using: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute, and return the rows it read."""
        connection = connections[using]
        with connection.cursor() as cursor:
            cursor.execute(self._texts[connection.vendor], adapted(connection.vendor, values))
            return list(cursor.fetchall())


def adapted(vendor: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values as this vendor's driver wants them: only identifiers differ."""
    dialect = DIALECTS[vendor]
    if dialect.uuid is None or dialect.uuids is None:
        return values
    return {name: _adapt(value, dialect.uuid, dialect.uuids) for name, value in values.items()}


def _adapt(value: Any, uuid: Callable[[UUID], Any], uuids: Callable[[list[UUID]], Any]) -> Any:
    if isinstance(value, UUID):
        return uuid(value)
    return uuids(value) if isinstance(value, list) else value
