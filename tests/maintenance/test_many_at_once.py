"""Two sweepers, two reconcilers, a webhook and an operator at once: each doubt is settled once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import connections

from django_idempotency import Reply, json_reply, maintenance
from django_idempotency.core.calls import make_record_id
from django_idempotency.core.refs import derive_key
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import Landed, NotLanded, Outcome, reconciler, resolve
from testproject.payments.models import LedgerEntry
from tests.kit.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.vendor]

OPERATION = "tests.many_at_once"
SETTLEMENTS = ("T9", "T10", "T13", "T14")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
KEYS = 1000

Settle = Callable[[], Counter[str]]


def lost_attempt(number: int) -> IdempotencyKey:
    """A lease and a grace that ended long ago."""
    scope, key = "scope", str(number)
    return IdempotencyKey(
        id=make_record_id(scope, key), scope=scope, key=key, status="in_progress", fingerprint="-", operation=OPERATION,
        attempt_token=uuid4(), locked_until=LONG_AGO, grace_until=LONG_AGO, lease_seconds=1, grace_seconds=1,
        retention_seconds=86_400, created_at=LONG_AGO, last_run_at=LONG_AGO,
    )  # fmt: skip


def landed(record: UUID) -> bool:
    """What is true about each of them: one half happened."""
    return record.int % 2 == 0


def book(record: UUID) -> Reply:
    LedgerEntry.objects.create(reference=str(record), account="gateway", amount=1)
    return json_reply(201, {"record": str(record)})


@pytest.fixture
def records() -> list[UUID]:
    made = IdempotencyKey.objects.bulk_create([lost_attempt(number) for number in range(KEYS)])
    return [row.id for row in made]


@pytest.fixture
def _asked(registrations: None) -> None:
    def ask(record: IdempotencyKey) -> Landed | NotLanded:
        return Landed(write=partial(book, record.id)) if landed(record.id) else NotLanded()

    reconciler(OPERATION)(ask)


def until_nothing_is_left(job: Settle) -> Counter[str]:
    total: Counter[str] = Counter()
    while IdempotencyKey.objects.filter(status__in=["in_progress", "unknown"]).exists():
        total += job()
    return total


def tell(records: list[UUID], knows: Callable[[UUID], Outcome]) -> Counter[str]:
    """Like a webhook that is delivered again while the record is running."""
    total: Counter[str] = Counter()
    left = list(records)
    random.shuffle(left)
    while left:
        outcomes = {record: knows(record) for record in left}
        total.update(outcome.value for outcome in outcomes.values())
        left = [record for record, outcome in outcomes.items() if outcome is Outcome.RUNNING]
    return total


def by_webhook(record: UUID) -> Outcome:
    said = Landed(write=partial(book, record)) if landed(record) else NotLanded()
    return resolve(derive_key(record, "", "charge"), said, by="gateway")


def by_operator(record: UUID) -> Outcome:
    said = Landed(write=partial(book, record)) if landed(record) else NotLanded()
    return resolve(record, said, by="ops", reason="seen in the provider's console", operator=True)


def alone(work: Settle) -> Counter[str]:
    """In a thread of its own, so with a connection of its own."""
    try:
        return work()
    finally:
        connections.close_all()


@pytest.mark.usefixtures("_asked")
def test_each_doubt_is_settled_once(records: list[UUID]) -> None:
    small = partial(maintenance.Bounds, batch_size=50)
    actors: list[Settle] = [
        *(partial(until_nothing_is_left, lambda: maintenance.sweep(small())) for _ in range(2)),
        *(partial(until_nothing_is_left, lambda: maintenance.reconcile(small())) for _ in range(2)),
        partial(tell, records, by_webhook),
        partial(tell, records, by_operator),
    ]

    counts = at_once([partial(alone, actor) for actor in actors])

    happened = {record for record in records if landed(record)}
    total = sum(counts, Counter[str]())
    assert total["overtaken"], "they met"
    assert total["unknown"] == len(records), "each lease lapsed once"
    assert (total["landed"], total["not_executed"]) == (len(happened), len(records) - len(happened))
    assert {str(record) for record in happened} == written_once()
    assert Counter(IdempotencyKey.objects.values_list("status", flat=True)) == {
        "completed": len(happened),
        "failed_retryable": len(records) - len(happened),
    }
    assert settlements() == dict.fromkeys(records, 1)
    assert total["failed"] == 0
    assert maintenance.sweep() == maintenance.reconcile() == {}


def written_once() -> set[str]:
    written = Counter(LedgerEntry.objects.values_list("reference", flat=True))
    assert set(written.values()) == {1}
    return set(written)


def settlements() -> dict[UUID, int]:
    """How often each record was settled, by the audit trail."""
    events = IdempotencyEvent.objects.filter(transition__in=SETTLEMENTS)
    return Counter(events.values_list("record_id", flat=True))
