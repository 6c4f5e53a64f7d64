"""Nobody retries: the sweeper and the resumer end what a killed process began."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F

from django_idempotency import maintenance, signals
from django_idempotency.core.progress import Progress
from django_idempotency.flow import registry
from django_idempotency.maintenance import health
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import NotLanded, Outcome, resolve
from django_idempotency.store import operations
from testproject.payments.models import LedgerEntry
from tests.kit.rides import POINTS, WORLD, Killed, World, cautious, claimed, lease_over, ride, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("world"), pytest.mark.vendor]


def killed(at: str, function: object = ride, **arguments: object) -> None:
    WORLD.kill_at = at
    with pytest.raises(Killed):
        run(claimed(str(uuid4())), function, **arguments)
    lease_over()
    assert maintenance.sweep() == {"unknown": 1}


@pytest.mark.parametrize("point", POINTS)
def test_the_resumer_ends_it_with_every_step_done_once(world: World, point: str) -> None:
    killed(point, user=7)
    assert maintenance.reconcile() == {}, "nobody is asked"

    assert maintenance.resume() == {"landed": 1}

    record = IdempotencyKey.objects.get()
    assert sorted(LedgerEntry.objects.values_list("reference", flat=True)) == ["booked", "receipt"]
    assert set(world.sent) == {record.derive("charged")}
    assert (record.status, record.response_status, record.recovery_point) == ("completed", 201, "receipt")
    assert maintenance.resume() == {}


def test_what_fails_again_backs_off_and_ends_as_a_dead_letter(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.IDEMPOTENCY = {"ATTEMPTS": 2, "ATTEMPTS_SPAN": 0}
    killed("after booked", user=7)
    monkeypatch.setattr(world, "charge", None)  # the code is broken now

    assert maintenance.resume() == {"inconclusive": 1}
    assert maintenance.resume() == {}, "backed off"
    IdempotencyKey.objects.update(reconcile_after=F("created_at") - timedelta(seconds=1))
    assert maintenance.resume() == {"dead_letter": 1}
    assert IdempotencyKey.objects.get().status == "dead_letter"
    assert [event.transition for event in IdempotencyEvent.objects.order_by("id")] == ["T6", "T7", "T5", "T12"]
    assert LedgerEntry.objects.count() == 1


def test_what_an_operator_gave_back_goes_on_with_the_next_request(world: World, settings: Any) -> None:
    settings.IDEMPOTENCY = {"ATTEMPTS": 1, "ATTEMPTS_SPAN": 0}
    killed("after booked", user=7)
    assert maintenance.resume() == {"dead_letter": 1}
    record = IdempotencyKey.objects.get()
    IdempotencyKey.objects.update(grace_until=F("created_at") - timedelta(hours=1), attempts=10)
    assert resolve(record.id, NotLanded(), by="ops", reason="mended", operator=True) is Outcome.NOT_EXECUTED

    record.refresh_from_db()
    assert (record.status, record.attempts, record.expires_at) == ("failed_retryable", 0, None)
    assert run(claimed(record.key), ride, user=7).status == 201
    assert sorted(LedgerEntry.objects.values_list("reference", flat=True)) == ["booked", "receipt"]


@pytest.mark.parametrize(("name", "version"), [("tests.of_another_release", 1), ("tests.ride", 2)])
def test_what_this_code_does_not_know_waits_for_a_worker_that_does(name: str, version: int) -> None:
    attempt = claimed(str(uuid4()))
    begun = operations.StoredOperation(name, "{}", Progress(version).dump(), 0)
    assert operations.begin_operation(attempt.ref, attempt.token, begun)
    lease_over()
    maintenance.sweep()

    assert maintenance.resume() == {"postponed": 1}
    assert IdempotencyKey.objects.get().status == "unknown"


def test_an_effect_that_must_not_be_repeated_is_not_resumed(world: World) -> None:
    killed("after the charge", cautious)
    assert maintenance.resume() == {}
    assert maintenance.reconcile() == {"postponed": 1}
    assert len(world.sent) == 1


def test_operations_are_found_by_name() -> None:
    assert registry.find_operation("tests.ride") is registry.operation_of(ride)


def test_neither_kind_of_doubt_fills_the_page_of_the_other(world: World) -> None:
    killed("after booked", user=7)
    killed("after the charge", cautious)
    rows, bounds = IdempotencyKey.objects, maintenance.Bounds(batch_size=1)
    resumable, doubtful = rows.get(run_name="tests.ride"), rows.get(run_name="tests.cautious")

    rows.filter(id=resumable.id).update(reconcile_after=F("created_at") - timedelta(hours=1))
    assert maintenance.reconcile(bounds) == {"postponed": 1}
    rows.filter(id=doubtful.id).update(reconcile_after=F("created_at") - timedelta(hours=2))
    assert maintenance.resume(bounds) == {"landed": 1}
    assert health().resumable == 0


def test_what_is_gone_on_with_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, Any]] = []

    def taken_over(call: Any, **payload: Any) -> None:
        heard.append(("taken over", call.id))

    def failed(record: Any, reason: str, **payload: Any) -> None:
        heard.append((reason, record))

    killed("after booked", user=7)
    assert health().resumable == 1
    monkeypatch.setattr(world, "charge", None)
    signals.taken_over.connect(taken_over)
    signals.resume_failed.connect(failed)
    try:
        assert maintenance.resume() == {"inconclusive": 1}
    finally:
        signals.taken_over.disconnect(taken_over)
        signals.resume_failed.disconnect(failed)
    record = IdempotencyKey.objects.get().id
    assert heard == [("taken over", record), ("TypeError", record)]
