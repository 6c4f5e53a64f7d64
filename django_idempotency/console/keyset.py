"""Keyset pagination: each page walks along one index, from the row at which the page before it ended.

Nothing is counted and no OFFSET is used. A condition that no index answers is searched for in a bounded number of
rows; the page shows how far it searched, and the next page continues there.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, Value
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_idempotency.conf import use_tz
from django_idempotency.models import IdempotencyKey, IdempotencyKeyQuerySet
from django_idempotency.store.dialects import dialect_of

PAGE: Final = 50
LOOK: Final = 20_000

Rows = IdempotencyKeyQuerySet


@dataclass(frozen=True, slots=True)
class Cursor:
    """The end of a page: a row, or only a time."""

    at: datetime
    id: UUID | None = None

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        at, _separator, record = text.partition("~")
        try:
            moment, row = datetime.fromisoformat(at), UUID(record) if record else None
            if timezone.is_aware(moment) is not use_tz():
                return None
            return cls(moment.astimezone(UTC) if use_tz() else moment, row)
        except (ValueError, OverflowError):
            return None

    def __str__(self) -> str:
        return f"{self.at.isoformat()}~{self.id.hex if self.id else ''}"


@dataclass(frozen=True, slots=True)
class Walk:
    """A column with an index, and the direction in which people read it."""

    column: str
    order: str | Promise
    further: str | Promise
    descending: bool = False
    bounded: bool = True  # False: its rows are found one by one, and no other row is looked at

    def start(self, rows: Rows) -> Rows:
        return rows if self.descending else rows.filter(**{f"{self.column}__isnull": False})

    def sorted(self, rows: Rows) -> Rows:
        names = (self.column, "pk")
        return rows.order_by(*(f"-{name}" for name in names)) if self.descending else rows.order_by(*names)

    def beyond(self, rows: Rows, cursor: Cursor) -> Rows:
        later, or_at = ("lt", "lte") if self.descending else ("gt", "gte")
        if cursor.id is None:
            return rows.filter(**{f"{self.column}__{later}": cursor.at})
        moment = self._moment(rows, cursor)
        behind = Q(**{f"{self.column}__{later}": moment}) | Q(**{f"pk__{later}": cursor.id})
        return rows.filter(behind, **{f"{self.column}__{or_at}": moment})

    def up_to(self, rows: Rows, end: Cursor) -> Rows:
        return rows.filter(**{f"{self.column}__{'gte' if self.descending else 'lte'}": end.at})

    def find_end(self, rows: Rows, number: int) -> Cursor | None:
        """Return the time of the last row to look at; None if there are fewer rows."""
        ordered = rows.order_by(f"-{self.column}" if self.descending else self.column)
        found = list(ordered.values_list(self.column, flat=True)[number - 1 : number])
        return Cursor(found[0]) if found else None

    def place_of(self, row: IdempotencyKey) -> Cursor:
        return Cursor(getattr(row, self.column), row.pk)

    def _moment(self, rows: Rows, cursor: Cursor) -> Any:
        if not dialect_of(rows.db).compares_times_as_text:
            return cursor.at
        # SQLite compares texts, and times are written with three or six decimals: use the row's own text.
        assert cursor.id is not None  # noqa: S101 - the caller handles a cursor without a row
        own = IdempotencyKey.objects.using(rows.db).filter(pk=cursor.id).values(self.column)[:1]
        return Coalesce(own, Value(cursor.at))


NEWEST: Final = Walk("created_at", _("newest first"), _("Older"), descending=True)
PICKED: Final = Walk("created_at", _("newest first"), _("Older"), descending=True, bounded=False)
LEASES: Final = Walk("locked_until", _("next lease to expire first"), _("Later"))
DOUBTS: Final = Walk("reconcile_after", _("next check first"), _("Later"))
EXPIRIES: Final = Walk("expires_at", _("next to expire first"), _("Later"))


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, where the next page begins, and how far the search went if it did not reach the end."""

    rows: list[IdempotencyKey]
    further: Cursor | None
    looked_to: datetime | None = None


def fetch_page(walk: Walk, reach: Rows, rows: Rows, cursor: Cursor | None, look: int = LOOK) -> Page:
    """Return the next page of `rows`. `reach` is the range of the index in which they are searched for."""
    is_search = rows is not reach
    rows, reach = walk.start(rows), walk.start(reach)
    if cursor is not None:
        rows, reach = walk.beyond(rows, cursor), walk.beyond(reach, cursor)
    end = walk.find_end(reach, look) if is_search and walk.bounded else None
    found = list(walk.sorted(walk.up_to(rows, end) if end else rows)[: PAGE + 1])
    if len(found) > PAGE:
        return Page(found[:PAGE], walk.place_of(found[PAGE - 1]))
    return Page(found, end, end.at if end else None)
