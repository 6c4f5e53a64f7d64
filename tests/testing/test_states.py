"""What takes minutes and days is over at once, and only for the record that was named."""

from __future__ import annotations

import pytest

from django_idempotency import Status
from django_idempotency.maintenance import reap, reconcile, sweep
from django_idempotency.models import IdempotencyKey
from django_idempotency.testing import grace_over, lease_over, retention_over
from tests.kit.records import change, claimed, completed, doubtful, row_of

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]


def test_a_lease_is_over() -> None:
    lost, running = claimed(), claimed()
    assert sweep() == {}
    lease_over(row_of(lost))
    assert sweep() == {"unknown": 1}
    assert [row_of(each).status for each in (lost, running)] == [Status.UNKNOWN, Status.IN_PROGRESS]


def test_grace_is_over_and_what_waited_for_it_is_due() -> None:
    waiting = doubtful()
    far = row_of(waiting).created_at.replace(year=2099)
    change(waiting, grace_until=far, reconcile_after=far)
    assert reconcile() == {}
    grace_over(row_of(waiting))
    assert sum(reconcile().values()) == 1
    after = row_of(waiting).grace_until
    assert after is not None
    assert after < far


def test_a_retention_is_over() -> None:
    old, new = completed(), completed()
    assert reap() == {}
    retention_over(row_of(old))
    assert reap()["deleted"] == 1
    assert IdempotencyKey.objects.get() == row_of(new)


def test_a_time_that_has_no_meaning_is_not_set() -> None:
    record = row_of(completed())
    lease_over(record)
    assert IdempotencyKey.objects.get().locked_until is None
