"""A handler that lives longer than its lease, with and without a heartbeat."""

import logging
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.db import connection

from django_idempotency import Policy
from django_idempotency.fields import StatementNow
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.heartbeat import beating
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import attempts
from tests.kit import records
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


def claimed(**policy: Any) -> Attempt:
    return records.claimed(**{"lease": timedelta(seconds=1), "transaction": "late", **policy})


def beaten(monkeypatch: pytest.MonkeyPatch, extend: Callable[..., bool]) -> Event:
    """Tells when a beat has been tried."""
    tried = Event()

    def watched(*args: Any) -> bool:
        try:
            return extend(*args)
        finally:
            tried.set()

    monkeypatch.setattr(attempts, "extend", watched)
    return tried


def test_the_lease_moves_while_the_handler_runs() -> None:
    attempt = claimed(heartbeat=timedelta(minutes=1))
    first = IdempotencyKey.objects.get().locked_until
    assert first is not None
    with beating(attempt):
        assert wait_until(lambda: IdempotencyKey.objects.get().locked_until > first)  # type: ignore[operator]
    assert IdempotencyKey.objects.filter(locked_until__gt=StatementNow()).exists()


def test_without_a_heartbeat_the_lease_does_not_move() -> None:
    attempt = claimed()
    before = IdempotencyKey.objects.get().locked_until
    with beating(attempt):
        pass
    assert IdempotencyKey.objects.get().locked_until == before


def test_a_lost_lease_is_loud(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    attempt = claimed(heartbeat=timedelta(minutes=1))
    tried = beaten(monkeypatch, attempts.extend)
    assert attempts.mark_doubtful(attempt.ref, attempt.token, "test")
    with caplog.at_level(logging.ERROR, "django_idempotency"), beating(attempt):
        assert tried.wait(60)
    assert "was lost while its handler is still running" in caplog.text


def test_a_beat_that_fails_is_loud_and_the_next_one_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = claimed(heartbeat=timedelta(minutes=1))
    first = IdempotencyKey.objects.get().locked_until
    assert first is not None
    real, failures = attempts.extend, [1]

    def failing_once(*args: Any) -> bool:
        if failures:
            failures.pop()
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_column FROM idempotency_key")
        return real(*args)

    monkeypatch.setattr(attempts, "extend", failing_once)
    with beating(attempt):
        assert wait_until(lambda: IdempotencyKey.objects.get().locked_until > first)  # type: ignore[operator]
    assert "heartbeat" in caplog.text


@pytest.mark.slow
def test_it_ends_when_the_policy_says_so(caplog: pytest.LogCaptureFixture) -> None:
    attempt = claimed(heartbeat=timedelta(seconds=1))
    with beating(attempt):
        assert wait_until(lambda: "longer than its heartbeat" in caplog.text)


@pytest.mark.slow
def test_below_a_third_of_the_lease_it_never_renews(caplog: pytest.LogCaptureFixture) -> None:
    attempt = claimed(lease=timedelta(seconds=6), heartbeat=timedelta(seconds=1))
    before = IdempotencyKey.objects.get().locked_until
    with beating(attempt):
        assert wait_until(lambda: "longer than its heartbeat" in caplog.text)
    assert IdempotencyKey.objects.get().locked_until == before


def test_a_heartbeat_needs_a_late_transaction() -> None:
    with pytest.raises(ValueError, match="heartbeat"):
        Policy(heartbeat=timedelta(minutes=1))
