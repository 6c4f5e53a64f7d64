"""What the record and its trail keep for the people who will have to find out what happened."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError
from django.db.models import F
from pytest_django.fixtures import Settings

from django_idempotency import maintenance
from django_idempotency.core.progress import Moment, Progress, Step, StepState
from django_idempotency.flow.attempt import MOST_DERIVED, KeyHandle
from django_idempotency.flow.finish import fail
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import Inconclusive, NotLanded, StepLanded, reconciler
from tests.kit.calls import a_call as a_plain_call
from tests.kit.calls import claimed as claimed_plainly
from tests.kit.records import OPERATION, doubtful
from tests.kit.rides import WORLD, Killed, World, cautious, claimed, lease_over, ride, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


def details(kind: str) -> dict[str, Any]:
    (found,) = IdempotencyEvent.objects.filter(kind=kind)
    known: dict[str, Any] = json.loads(found.details)
    return known


def test_each_step_says_when_it_was_done_and_in_which_attempt(world: World) -> None:
    WORLD.kill_at = "after the charge"
    with pytest.raises(Killed):
        run(claimed(str(uuid4())), ride, user=7)
    # The first attempt was ten minutes ago, by the database's clock.
    IdempotencyKey.objects.update(created_at=F("created_at") - timedelta(minutes=10))
    lease_over()
    assert maintenance.sweep() == {"unknown": 1}
    assert maintenance.resume() == {"landed": 1}

    row = IdempotencyKey.objects.get()
    booked, charged, receipt = Progress.load(row.progress).steps
    assert (booked.begun, receipt.begun) == (None, None), "only an effect is recorded when it begins"
    first, begun, again, last = (present(each) for each in (booked.ended, charged.begun, charged.ended, receipt.ended))
    assert [each.attempt for each in (first, begun, again, last)] == [1, 1, 2, 2]
    assert first.after <= begun.after < 60_000
    assert 600_000 <= again.after <= last.after < 660_000
    assert row.completed_at is not None
    assert row.created_at + timedelta(milliseconds=last.after) <= row.completed_at
    assert details("taken over") == {"attempt": 2}


def present(moment: Moment | None) -> Moment:
    assert moment is not None
    return moment


def test_a_step_that_a_verdict_settled_belongs_to_no_attempt(world: World, registrations: None) -> None:
    reconciler("tests.cautious", step="charged")(lambda _record, key: StepLanded(key))
    WORLD.kill_at = "after the charge"
    with pytest.raises(Killed):
        run(claimed(str(uuid4())), cautious)
    lease_over()
    maintenance.sweep()
    assert maintenance.reconcile() == {"resumable": 1}
    (step,) = Progress.load(IdempotencyKey.objects.get().progress).steps
    assert step.begun is not None
    assert step.ended is not None
    assert (step.begun.attempt, step.ended.attempt) == (1, 0)
    assert step.begun.after <= step.ended.after


def test_progress_without_times_stays_readable_and_so_does_ours_to_older_code() -> None:
    old = '{"version":1,"steps":[["booked","done",7],["charged","started",null]]}'
    loaded = Progress.load(old)
    assert [(step.begun, step.ended) for step in loaded.steps] == [(None, None)] * 2
    assert loaded.dump() == old
    marked = loaded.mark_done("charged", "ch", Moment(9, 2)).mark_done("receipt", None, Moment(12, 2))
    stored = json.loads(marked.dump())
    assert stored["steps"] == [["booked", "done", 7], ["charged", "done", "ch"], ["receipt", "done", None]]
    assert Progress.load(marked.dump()) == marked
    assert marked.steps[-1] == Step("receipt", StepState.DONE, None, None, Moment(12, 2))


def test_more_moments_than_steps_are_ignored() -> None:
    text = '{"version":1,"steps":[["a","done",1]],"moments":[[null,[5,1]],[null,[6,1]]]}'
    assert Progress.load(text).steps == (Step("a", StepState.DONE, 1, None, Moment(5, 1)),)


def test_a_doubt_keeps_the_message_the_trace_and_what_was_sent(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"TRACE_ID": lambda: "trace-7"}
    attempt = claimed_plainly(a_plain_call())
    attempt.derived = ("charge", "receipt")
    fail(attempt, TimeoutError("no answer from https://bank.example/pay?card=4242"))
    found = details("in doubt")
    assert found.pop("seconds") >= 0
    assert found == {
        "attempt": 1,
        "derived": ["charge", "receipt"],
        "message": "no answer from https://bank.example/pay?[…]",
        "trace": "trace-7",
    }


def test_an_attempt_remembers_the_first_names_that_it_derived_keys_for() -> None:
    attempt = claimed_plainly(a_plain_call())
    handle = KeyHandle(attempt, late=True)
    for number in range(2 * MOST_DERIVED):
        assert handle.derive(f"line-{number}") == handle.derive(f"line-{number}") == attempt.derive(f"line-{number}")
    assert attempt.derived == tuple(f"line-{number}" for number in range(MOST_DERIVED))


@pytest.mark.parametrize(
    ("setting", "error", "expected"),
    [
        ({}, DataError("Failing row contains (4242, carol)"), None),
        ({"DESCRIBE_ERROR": None}, RuntimeError("secret"), None),
        ({"DESCRIBE_ERROR": lambda error: f"<{error}>"}, RuntimeError("as it is"), "<as it is>"),
        ({"DESCRIBE_ERROR": lambda _error: 1 / 0}, RuntimeError("lost"), None),
        ({"TRACE_ID": lambda: 1 / 0}, RuntimeError("kept"), "kept"),
        ({"TRACE_ID": lambda: None}, RuntimeError("kept \ud800 \0"), "kept \ud800 \0"),
    ],
)
def test_what_describes_a_failure_never_hides_it(
    settings: Settings, setting: dict[str, Any], error: Exception, expected: str | None
) -> None:
    settings.IDEMPOTENCY = setting
    attempt = claimed_plainly(a_plain_call())
    fail(attempt, error)
    assert IdempotencyKey.objects.get().status == "unknown"
    assert details("in doubt").get("message") == expected
    assert "trace" not in details("in doubt")


def test_each_poll_is_kept_with_its_reason(registrations: None, settings: Settings) -> None:
    settings.IDEMPOTENCY = {"RECONCILE_TRIES": 3, "RECONCILE_BACKOFF": 0}
    answers: list[Any] = [
        Inconclusive(retry_in=90, reason="the bank is closed"),
        TimeoutError("token=abc"),
        TimeoutError,
    ]

    @reconciler(OPERATION)
    def ask(_row: IdempotencyKey) -> Inconclusive:
        answer = answers.pop(0)
        if isinstance(answer, Inconclusive):
            return answer
        raise answer

    doubtful()
    for expected in ("inconclusive", "inconclusive", "dead_letter"):
        IdempotencyKey.objects.update(reconcile_after=F("created_at"))
        assert maintenance.reconcile() == {expected: 1}
    polls = IdempotencyEvent.objects.exclude(kind="in doubt").order_by("id")
    assert [(each.kind, each.transition, each.actor, each.reason) for each in polls] == [
        ("inconclusive", "T11", "reconciler", "the bank is closed"),
        ("inconclusive", "T11", "reconciler", "TimeoutError"),
        ("dead letter", "T12", "reconciler", "TimeoutError"),
    ]
    first, second, last = (json.loads(each.details) for each in polls)
    assert first == {"try": 1, "of": 3, "wait": 90}
    assert second == {"try": 2, "of": 3, "wait": 1, "message": "token=[…]"}
    assert last == {"try": 3, "of": 3}


def test_a_verdict_that_comes_too_early_is_kept(registrations: None) -> None:
    reconciler(OPERATION)(lambda _row: NotLanded())
    doubtful(grace_over=False)
    assert maintenance.reconcile() == {"postponed": 1}
    assert details("too early")["wait"] > 0
