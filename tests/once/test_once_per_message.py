"""One message, delivered again and again, as Celery itself applies it in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from celery import shared_task
from celery.app.task import Context
from celery.app.trace import build_tracer

from django_idempotency.exceptions import InvalidKey, KeyReused, Misplaced, NotExecuted, OutcomeUnknown, StillRunning
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.tasks import WAITS, once_per_message
from testproject.payments.models import LedgerEntry

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]


@once_per_message("tests.messages")
def book(claim: Claim, reference: str, *, fails: str = "") -> str:
    """Books an entry."""
    LedgerEntry.objects.create(reference=reference, account="message", amount=1)
    if fails == "always" or (fails == "at first" and not claim.is_repeat):
        raise NotExecuted
    if fails == "in the middle":
        raise RuntimeError
    return uuid4().hex


by_id: Any = shared_task(name="tests.by_id", default_retry_delay=0, max_retries=2)(book)


@shared_task(name="tests.by_key")
@once_per_message("tests.orders", key=lambda order, *_, **__: f"order {order}", mode="atomic")
def by_key(claim: Claim, order: int, colour: str = "red") -> str:
    return uuid4().hex


@shared_task(name="tests.bound", bind=True)
@once_per_message("tests.bound")
def bound(claim: Claim, order: int) -> None:
    """Never runs."""


def deliver(task: Any, *args: Any, message: str, **kwargs: Any) -> Any:
    return task.apply(args, kwargs, task_id=message)


def entries(reference: str) -> int:
    return LedgerEntry.objects.filter(reference=reference).count()


@pytest.fixture
def message() -> str:
    return uuid4().hex


def test_a_bound_task_is_told_where_its_task_is(message: str) -> None:
    with pytest.raises(Misplaced, match=r"celery\.current_task"):
        deliver(bound, 7, message=message).get()


def test_a_message_that_comes_again_gets_the_stored_result(message: str) -> None:
    results = [deliver(by_id, message, message=message).get() for _ in range(3)]

    assert len(set(results)) == 1
    assert entries(message) == 1
    assert deliver(by_id, "another", message=uuid4().hex).get() not in results


def test_the_key_may_come_from_the_arguments() -> None:
    results = {deliver(by_key, 7, message=uuid4().hex).get() for _ in range(2)}
    assert len(results) == 1
    assert IdempotencyKey.objects.get().scope == "once:tests.orders"


@pytest.mark.parametrize("again", [{"order": 7}, {"order": 7, "colour": "red"}], ids=repr)
def test_the_same_arguments_in_another_spelling_are_the_same(again: Any) -> None:
    assert deliver(by_key, 7, message="1").get() == deliver(by_key, message="2", **again).get()


def test_other_arguments_under_the_same_key_are_refused() -> None:
    deliver(by_key, 7, message="1").get()
    refused = deliver(by_key, 7, "blue", message="2")
    assert (refused.state, type(refused.result)) == ("FAILURE", KeyReused)


def test_arguments_that_do_not_fit_claim_nothing() -> None:
    assert isinstance(deliver(by_key, message="1").result, TypeError)
    assert not IdempotencyKey.objects.exists()


def test_what_is_in_doubt_does_not_run_and_shows(message: str) -> None:
    failed = deliver(by_id, message, fails="in the middle", message=message)
    assert isinstance(failed.result, RuntimeError)

    again = deliver(by_id, message, fails="in the middle", message=message)

    assert (again.state, type(again.result), entries(message)) == ("FAILURE", OutcomeUnknown, 1)


def test_what_had_no_effect_is_retried(message: str) -> None:
    retried = deliver(by_id, message, fails="at first", message=message)
    assert (retried.state, entries(message)) == ("SUCCESS", 2)


def test_what_never_has_an_effect_is_retried_as_often_as_the_task_says(message: str) -> None:
    refused = deliver(by_id, message, fails="always", message=message)
    assert (refused.state, type(refused.result), entries(message)) == ("FAILURE", NotExecuted, 3)


def while_it_runs_elsewhere(message: str, do: Callable[[], None]) -> None:
    payload = {"reference": message, "fails": ""}
    once(scope="tests.messages", key=message, payload=payload, run=lambda claim: do())


def test_what_runs_elsewhere_comes_again_later_however_often(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_a_worker = build_tracer(by_id.name, by_id, app=by_id.app)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(by_id, "apply_async", lambda args, kwargs, **options: sent.append(options))

    def come() -> None:
        for waits in (0, 3, 6, 7, 400):
            request = {"id": message, "args": (message,), "kwargs": {}, "retries": 2, WAITS: waits}
            met: Any = as_a_worker(message, [message], {}, request).info
            assert (met.state, type(met.retval.exc)) == ("RETRY", StillRunning)

    while_it_runs_elsewhere(message, come)
    assert [each["countdown"] for each in sent] == [2, 8, 60, 60, 60]
    assert [each["headers"][WAITS] for each in sent] == [1, 4, 7, 8, 401]
    assert {(each["task_id"], each["retries"]) for each in sent} == {(message, 2)}
    assert entries(message) == 0


def test_what_comes_again_carries_the_headers_that_a_retry_would(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ takes a message that still says where it died for one that goes round in circles, and drops it."""
    as_a_worker = build_tracer(by_id.name, by_id, app=by_id.app)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(by_id, "apply_async", lambda args, kwargs, **options: sent.append(options))
    headers = {"mine": "kept", "x-death": [{"queue": "delayed"}], "x-first-death-queue": "delayed"}
    request = {"id": message, "args": (message,), "kwargs": {}, "headers": headers}

    def come() -> None:
        as_a_worker(message, [message], {}, request)

    while_it_runs_elsewhere(message, come)
    (again,) = sent
    assert again["headers"] == {**Context(request).as_execution_options()["headers"], WAITS: 1}
    assert again["headers"]["mine"] == "kept"


def test_what_runs_elsewhere_fails_where_nothing_can_come_later(message: str) -> None:
    def come() -> None:
        met = deliver(by_id, message, message=message)
        assert (met.state, type(met.result)) == ("FAILURE", StillRunning)

    while_it_runs_elsewhere(message, come)
    assert entries(message) == 0


def test_called_without_a_message_it_needs_a_key() -> None:
    with pytest.raises(InvalidKey, match="key="):
        by_id("reference")
    assert by_key(7) == by_key(7)


def test_called_directly_while_it_runs_elsewhere_it_says_so() -> None:
    def run(claim: Claim) -> None:
        with pytest.raises(StillRunning):
            by_key(8)

    once(scope="tests.orders", key="order 8", payload={"order": 8, "colour": "red"}, run=run)


def test_the_decorator_must_be_below_the_task() -> None:
    with pytest.raises(Misplaced, match="below @shared_task"):
        book("reference")


def test_it_is_still_the_function_that_it_was() -> None:
    assert (book.__name__, book.__doc__) == ("book", "Books an entry.")


@pytest.mark.parametrize("arguments", [{"mode": "eventual"}, {"on_lost_lease": "resume"}, {"required": True}], ids=str)
def test_a_wrong_argument_is_an_error_where_it_is_written(arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        once_per_message("tests.messages", **arguments)(book)
