"""Whatever runs at once, a provider is asked once for each due time, and a worker is sent one message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from time import sleep
from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.db.models import F

from django_idempotency import maintenance
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.flow.settle import Outcome
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Inconclusive, NotLanded, Verdict, reconciler
from tests.kit.records import OPERATION, change, doubtful, row_of
from tests.kit.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

RECORDS = 9


@pytest.fixture
def asked(registrations: None) -> Counter[UUID]:
    """How often a provider that needs a moment, and cannot tell, was asked about each record."""
    count: Counter[UUID] = Counter()

    def ask(record: IdempotencyKey) -> Verdict:
        count[record.id] += 1
        sleep(0.05)
        return Inconclusive(retry_in=3600)

    reconciler(OPERATION)(ask)
    return count


def in_a_thread(job: Callable[[], Counter[str]]) -> Callable[[], Counter[str]]:
    def run() -> Counter[str]:
        try:
            return job()
        finally:
            connections.close_all()

    return run


def test_two_reconcilers_at_once_ask_once_about_each_record(asked: Counter[UUID]) -> None:
    for _ in range(RECORDS):
        doubtful()
    done = at_once([in_a_thread(maintenance.reconcile)] * 3)
    assert set(asked.values()) == {1}, asked
    assert len(asked) == RECORDS
    assert sum(each["inconclusive"] for each in done) == RECORDS
    assert set(IdempotencyKey.objects.values_list("reconcile_attempts", flat=True)) == {1}


def test_a_row_of_an_old_page_is_not_asked_about_again(asked: Counter[UUID]) -> None:
    """Another process read its page before this one had asked, and comes to the row afterwards."""
    attempt = doubtful()
    ref = row_of(attempt).ref
    assert reconcile_one(ref.id, ref.using) is Outcome.INCONCLUSIVE
    assert reconcile_one(ref.id, ref.using) is Outcome.OVERTAKEN
    assert asked[ref.id] == 1
    change(attempt, reconcile_after=F("created_at") - timedelta(seconds=1))
    assert reconcile_one(ref.id, ref.using) is Outcome.INCONCLUSIVE, "due again"


def test_an_operator_may_ask_before_it_is_due(asked: Counter[UUID]) -> None:
    attempt = doubtful()
    ref = row_of(attempt).ref
    reconcile_one(ref.id, ref.using)
    assert reconcile_one(ref.id, ref.using, at_once=True) is Outcome.INCONCLUSIVE
    assert asked[ref.id] == 2


@pytest.mark.usefixtures("registrations")
def test_no_process_asks_about_one_that_waits_for_its_grace() -> None:
    count: list[UUID] = []

    def deny(record: IdempotencyKey) -> Verdict:
        count.append(record.id)
        return NotLanded()

    reconciler(OPERATION)(deny)
    ref = row_of(doubtful(grace_over=False)).ref
    assert reconcile_one(ref.id, ref.using) is Outcome.POSTPONED
    assert reconcile_one(ref.id, ref.using) is Outcome.OVERTAKEN
    assert len(count) == 1


@pytest.mark.usefixtures("registrations")
def test_two_resumers_send_one_message(settings: Any) -> None:
    sent: list[str] = []

    def enqueue(record: str) -> None:
        sleep(0.05)
        sent.append(record)

    settings.IDEMPOTENCY = {"ENQUEUE": enqueue}
    progress = '{"version":1,"steps":[]}'
    for _ in range(RECORDS):
        change(doubtful(), deferred=True, run_name="tests.work", on_lost_lease="resume", progress=progress)
    at_once([in_a_thread(maintenance.resume)] * 3)
    assert sorted(Counter(sent).values()) == [1] * RECORDS
