"""Outcomes per minute. Every process adds to them; the dashboard reads them."""

from collections import Counter
from datetime import UTC, timedelta
from typing import Final

from django.db import transaction
from django.db.models import F, QuerySet, Value
from django.utils import timezone

from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyCount
from django_idempotency.store.dialects import Statement

MINUTES_KEPT: Final = timedelta(hours=25)  # longer than the dashboard's day and an hour

ACCUMULATE = Statement(
    "",
    """
    INSERT INTO idempotency_count (minute, operation, outcome, count)
    VALUES ({minute + %(since)s}, %(operation)s, %(outcome)s, %(amount)s)
    {or add count}
    """,
)

OVER_TIME = Statement(
    "",
    """
    SELECT FLOOR(-({left minute}) / %(width)s) AS slot, operation, outcome, SUM(count) FROM idempotency_count
    WHERE minute > {now + %(since)s} GROUP BY slot, operation, outcome
    """,
)


def accumulate(ago: float, operation: str, outcome: str, amount: int, using: str) -> None:
    """Add an amount to the minute that was `ago` seconds before now."""
    ACCUMULATE.run(using, since=-ago, operation=operation, outcome=outcome, amount=amount)


def read_slots(seconds: float, slots: int, using: str) -> dict[tuple[str, str], dict[int, int]]:
    """Return for each operation and outcome how often it happened in each slot of a period that ends now.

    Slot 0 is the newest.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}
    for slot, operation, outcome, count in OVER_TIME.rows(using, width=seconds / slots, since=-seconds):
        place, counts = min(max(int(slot), 0), slots - 1), found.setdefault((operation, outcome), {})
        counts[place] = counts.get(place, 0) + int(count)
    return found


def counts_before(retention: timedelta, using: str) -> QuerySet[IdempotencyCount]:
    """Return counts that are older than the retention."""
    return (
        IdempotencyCount.objects.using(using).filter(minute__lte=StatementNow() - Value(retention)).order_by("minute")
    )


def merge_oldest_hour(using: str) -> int:
    """Add the counts of one hour to its first minute, so that a month stays quick to read; return how many were.

    An hour that has been over for a day; 0 if there is none. Two runs at once: one finds nothing left to merge.
    """
    counts = IdempotencyCount.objects.using(using)
    with timezone.override(UTC), transaction.atomic(using):
        old = counts.filter(minute__lte=StatementNow() - Value(MINUTES_KEPT)).exclude(minute__minute=0)
        first = old.order_by("minute").values_list("minute", flat=True).first()
        if first is None:
            return 0
        hour = first.replace(minute=0)
        rest = counts.filter(minute__gt=hour, minute__lt=hour + timedelta(hours=1))
        sums, rows = Counter[tuple[str, str]](), list(rest.select_for_update())
        for row in rows:
            sums[row.operation, row.outcome] += row.count
        for (operation, outcome), count in sums.items():
            bucket = {"minute": hour, "operation": operation, "outcome": outcome}
            if not counts.filter(**bucket).update(count=F("count") + count):
                counts.create(**bucket, count=count)
        if rest.delete()[0] != len(rows):  # another process has just written to this hour: the next run merges it
            transaction.set_rollback(True, using)
            return 0
        return len(rows)
