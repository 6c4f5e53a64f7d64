"""The records with a past worth reading, which the pictures of the admin show, contradict themselves nowhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_idempotency import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from testproject.stories import tell

# How each story ends, and what the audit trail says of it.
ENDINGS = {
    "running": (Status.IN_PROGRESS, []),
    "paid": (Status.COMPLETED, []),
    "refused": (Status.FAILED_RETRYABLE, []),
    "unanswered": (Status.UNKNOWN, ["T5"]),
    "given-up": (Status.DEAD_LETTER, ["T5", "", "T12"]),
    "webhook": (Status.COMPLETED, ["T5", "T13"]),
    "by-hand": (Status.FAILED_RETRYABLE, ["T5", "T14"]),
    "withdrawn": (Status.EXPIRED, ["T18"]),
    "ride": (Status.UNKNOWN, ["T5"]),
}


@pytest.mark.django_db
def test_each_story_ends_in_its_state_with_its_events() -> None:
    tell()
    for story, ending in ENDINGS.items():
        row = IdempotencyKey.objects.get(key__startswith=f"story-{story}")
        events = IdempotencyEvent.objects.filter(record_id=row.pk).order_by("id").values_list("transition", flat=True)
        assert (row.status, list(events)) == ending, story


@pytest.mark.django_db
def test_what_happened_to_a_story_happened_in_this_order() -> None:
    assert tell() == IdempotencyKey.objects.count()
    assert tell() == 0
    for row in IdempotencyKey.objects.all():
        events = list(IdempotencyEvent.objects.filter(record_id=row.pk).order_by("id").values_list("at", flat=True))
        lease, now = timedelta(seconds=row.lease_seconds), timezone.now() + timedelta(seconds=5)  # two clocks
        assert [row.created_at, *events, now] == sorted([row.created_at, *events, now]), row.key
        given_back = IdempotencyEvent.objects.filter(record_id=row.pk, transition="T14").exists()
        assert row.attempts == (0 if given_back else 1), row.key
        assert row.grace_until == row.created_at + lease + timedelta(seconds=row.grace_seconds), row.key
        if row.status == Status.IN_PROGRESS:
            assert row.locked_until == row.created_at + lease
            assert row.locked_until > now
        if row.completed_at is not None:
            assert row.created_at < row.completed_at < now, row.key
        if row.status == Status.COMPLETED:
            assert row.completed_at is not None
            assert row.expires_at is not None
            kept = row.expires_at - row.completed_at
            assert abs(kept - timedelta(seconds=row.retention_seconds or 0)) < timedelta(seconds=5), row.key
