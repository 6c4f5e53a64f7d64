"""Outcomes per minute. Every process adds to them; the dashboard reads them."""

from datetime import timedelta

from django.db.models import QuerySet, Value

from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyCount
from django_idempotency.store.dialects import Statement

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
