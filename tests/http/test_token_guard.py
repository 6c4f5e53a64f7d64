"""What a client sees of the token guard: an attempt that lost its record ends while the next one runs.

The first request's lease runs out, a retry takes over, and then the first request ends. Its statements must not match
the retry's record. Each test runs twice: as it is, and without the guard, where the schedule shows the difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import attempts
from django_idempotency.store.dialects import Statement
from tests.kit.http import Person, Ran
from tests.kit.threads import actors

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]
PATIENCE = 20


class Schedule:
    """Two requests, and who waits for whom."""

    def __init__(self, first_ends: Callable[[], HttpResponse]) -> None:
        self.first_ends = first_ends
        self.first_runs, self.second_runs, self.first_may_end, self.second_may_end = (Event() for _ in range(4))

    def view(self, request: Any) -> HttpResponse:
        number = Ran.again()
        if number == 1:
            self.first_runs.set()
            assert self.first_may_end.wait(PATIENCE)
            self.first_ends()
        if number == 2:
            self.second_runs.set()
            assert self.second_may_end.wait(PATIENCE)

        def write() -> HttpResponse:
            Group.objects.create(name=f"written by {number}")
            return JsonResponse({"run": number}, status=201)

        return request.idempotency.finish(write)  # type: ignore[no-any-return]


def break_down() -> HttpResponse:
    raise RuntimeError("the first request fails late")


def go_on() -> HttpResponse:
    return HttpResponse()


def take_guard_away(monkeypatch: pytest.MonkeyPatch, statement: Statement) -> None:
    texts = {vendor: re.sub(r" AND attempt_token = %\(token\)s", "", text) for vendor, text in statement._texts.items()}
    assert texts != statement._texts
    monkeypatch.setattr(statement, "_texts", texts)


def play(settings: Any, alice: Person, first_ends: Callable[[], HttpResponse]) -> list[Any]:
    """The responses of the first request, of the retry, and of a second retry that comes while the first retry runs."""
    schedule = Schedule(first_ends)
    policy: dict[str, Any] = {"transaction": "late", "on_lost_lease": "restart", "attempts_span": timedelta(0)}

    def served(request: HttpRequest) -> HttpResponse:
        return schedule.view(request)

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", idempotent(**policy)(served))]})
    with actors(2) as (one, two), release_at_the_end(schedule):
        first: Future[Any] = one.start(alice.post, "/it")
        assert schedule.first_runs.wait(PATIENCE)
        IdempotencyKey.objects.update(locked_until=F("created_at") - timedelta(seconds=1))
        retry: Future[Any] = two.start(alice.post, "/it")
        assert schedule.second_runs.wait(PATIENCE)
        schedule.first_may_end.set()
        ended = first.result(PATIENCE)
        third = alice.post("/it")
        schedule.second_may_end.set()
        return [ended, retry.result(PATIENCE), third]


def release_at_the_end(schedule: Schedule) -> AbstractContextManager[Any]:
    """No thread waits for ever after a failure."""
    stack = ExitStack()
    stack.callback(schedule.first_may_end.set)
    stack.callback(schedule.second_may_end.set)
    return stack


def written() -> list[str]:
    return list(Group.objects.order_by("name").values_list("name", flat=True))


def test_a_late_failure_does_not_take_the_record_from_the_retry(alice: Person, settings: Any) -> None:
    failed, retry, third = play(settings, alice, break_down)
    assert (failed.status_code, third.status_code, retry.status_code) == (500, 409, 201)
    assert third.json()["code"] == "idempotency_key_in_progress"
    assert (Ran.count, written()) == (2, ["written by 2"])


def test_without_the_guard_a_late_failure_starts_a_third_run(
    alice: Person, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_guard_away(monkeypatch, attempts.DOUBT)
    _, retry, third = play(settings, alice, break_down)
    assert (Ran.count, third.json()) == (3, {"run": 3}), "a run too many"
    assert retry.json() != {"run": 2}, "and the retry lost what it did"


def test_a_late_response_does_not_end_the_retry(alice: Person, settings: Any) -> None:
    late, retry, third = play(settings, alice, go_on)
    assert (late.status_code, third.status_code, retry.json()) == (409, 409, {"run": 2})
    assert written() == ["written by 2"]


def test_without_the_guard_a_late_response_ends_the_retry_and_is_still_written_once(
    alice: Person, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status guard holds the domain write. Only whose response is kept is seen."""
    take_guard_away(monkeypatch, attempts.COMPLETE)
    late, retry, third = play(settings, alice, go_on)
    assert [late.json(), third.json(), retry.json()] == [{"run": 1}] * 3
    assert written() == ["written by 1"]
