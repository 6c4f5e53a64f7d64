"""Records for `idempotency_list`: the admin's searches, each along an index, and bounded like them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Value

from django_idempotency.console.bodies import CONTENT
from django_idempotency.console.filters import StatusFilter
from django_idempotency.console.keyset import NEWEST, PICKED, Cursor, Page, Rows, Walk, fetch_page
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyKey


@dataclass
class Listed:
    """What was found, and how far the search went if it did not reach the end."""

    rows: list[Any] = field(default_factory=list)
    has_more: bool = False
    was_cut: bool = False  # a condition that no index answers was looked for in the first `LOOK` records only
    searched_to: datetime | None = None


def list_records(
    using: str,
    *,
    statuses: Sequence[Status] = (),
    operation: str = "",
    tenant: str = "",
    principal: str = "",
    older_than: timedelta | None = None,
    limit: int = 50,
) -> Listed:
    """Return records in the order of the states; within a state in the order of the index that has them."""
    found = Listed()
    names = {"operation": operation, "tenant": tenant, "principal": principal}
    narrowed = {name: value for name, value in names.items() if value}
    for status in dict.fromkeys(statuses) if statuses else [None]:
        walk = NEWEST if status is None else StatusFilter.walks.get(status, NEWEST)
        reach = IdempotencyKey.objects.using(using).defer(*CONTENT).with_time()
        age = {} if older_than is None else {"created_at__lte": StatementNow() - Value(older_than)}
        if walk is NEWEST:
            reach, age = reach.filter(**age), {}  # a range of this index
        if status is Status.UNKNOWN:
            reach = reach.filter(status=status)  # nothing else is in this index
        rows = reach.filter(**narrowed, **age) if narrowed or age else reach
        if status is not None:
            rows = _of_status(rows, status, walk)
        _collect(found, walk, reach, rows, limit)
        if len(found.rows) >= limit:
            found.has_more = found.has_more or status not in (None, *statuses[-1:])
            break
    return found


def _of_status(rows: Rows, status: Status, walk: Walk) -> Rows:
    if status is Status.UNKNOWN:
        return rows
    return rows.dead_letters() if walk is PICKED else rows.filter(status=status)


def _collect(found: Listed, walk: Walk, reach: Rows, rows: Rows, limit: int) -> None:
    """Add the pages of one search, until there are enough or the search has looked far enough."""
    cursor: Cursor | None = None
    while len(found.rows) < limit:
        page: Page = fetch_page(walk, reach, rows, cursor)
        room = limit - len(found.rows)
        found.rows += page.rows[:room]
        if page.looked_to is not None:
            found.was_cut, found.searched_to = True, page.looked_to if walk is NEWEST else None
            return
        cursor = page.further
        if cursor is None or len(found.rows) >= limit:
            found.has_more = found.has_more or cursor is not None or len(page.rows) > room
            return
