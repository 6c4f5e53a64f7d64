"""A handler that lives longer than its lease, with and without a heartbeat."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from io import StringIO
from threading import Event
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_idempotency import Policy
from django_idempotency.console.timeline import build_timeline
from django_idempotency.fields import StatementNow
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.heartbeat import beating
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
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
    assert not IdempotencyEvent.objects.exists(), "one failure is none"


@contextmanager
def without_table(name: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} RENAME TO {name}_away")
        try:
            yield
        finally:
            cursor.execute(f"ALTER TABLE {name}_away RENAME TO {name}")


def ask_doctor() -> dict[str, Any]:
    output = StringIO()
    with pytest.raises(CommandError):
        call_command("idempotency_doctor", "--json", stdout=output)
    return {each["code"]: each for each in json.loads(output.getvalue())["findings"]}


@pytest.mark.parametrize("lost", [["idempotency_key"], ["idempotency_key", "idempotency_event"]], ids=["one", "both"])
def test_two_failures_in_a_row_are_a_finding(lost: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """It is noted at once, or as soon as the trail can be written."""
    attempt = claimed(heartbeat=timedelta(minutes=1))
    with beating(attempt), ExitStack() as tables:
        for name in lost:
            tables.enter_context(without_table(name))
        assert wait_until(lambda: caplog.text.count("A heartbeat of record") > 1)
        if len(lost) == 1:
            assert wait_until(IdempotencyEvent.objects.exists)
    (event,) = IdempotencyEvent.objects.filter(record_id=attempt.call.id)
    assert (event.kind, event.transition) == ("heartbeat failed", "")
    assert "idempotency_key" in event.reason
    assert "Its heartbeat failed" in str(build_timeline(IdempotencyKey.objects.get(), [event])[-1].title)
    assert ask_doctor()["heartbeat-failed"]["count"] == 1

    IdempotencyEvent.objects.update(at=StatementNow() - timedelta(days=1))
    assert "heartbeat-failed" not in ask_doctor()


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
