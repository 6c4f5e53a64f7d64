"""A record in every state, as the constraints of the table and the jobs want it."""

from __future__ import annotations

import pytest

from django_idempotency import Status
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import find_record
from django_idempotency.testing import RecordFactory, lease_over, retention_over, unknown

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]


@pytest.mark.parametrize("status", Status)
def test_a_record_in_every_state(status: Status) -> None:
    record = RecordFactory(status=status)
    record.full_clean()
    assert IdempotencyKey.objects.get() == record
    assert IdempotencyKey.objects.get().status == status
    assert find_record((record.scope, record.key)) == record


def test_times_are_those_of_the_state() -> None:
    running, done = RecordFactory(status="in_progress"), RecordFactory()
    lease_over(running)
    retention_over(done)
    read = IdempotencyKey.objects.with_time()
    assert read.get(pk=running.pk).lease_over
    assert read.get(pk=done.pk).retention_over
    assert unknown(running).status == Status.UNKNOWN
