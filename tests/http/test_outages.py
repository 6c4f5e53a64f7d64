"""A provider that is away for a moment, and a client that retries without patience."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency import Reply, json_reply, maintenance
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from tests.kit.http import Person, Ran

pytestmark = pytest.mark.django_db(transaction=True)


class Provider:
    is_away = True


class Refused(Exception):
    """The provider refused the connection."""


def reach(key: str = "") -> str:
    Ran.again()
    if Provider.is_away:
        raise Refused
    return "ch_1"


@idempotent(operation="tests.outage", transaction="late")
def pay(request: HttpRequest) -> HttpResponse:
    try:
        return JsonResponse({"charge": reach()}, status=201)
    except Refused:
        raise NotExecuted from None


def is_refusal(error: BaseException) -> bool:
    return isinstance(error, Refused)


@operation("tests.outage_ride")
def ride(op: Op) -> Reply:
    op.phase("booked", lambda: 1)
    return json_reply(201, {"charge": op.effect("charged", reach, in_doubt="reconcile")})


@operation("tests.outage_repeat")
def repeated(op: Op) -> Reply:
    return json_reply(201, {"charge": op.effect("charged", reach, in_doubt="repeat")})


@idempotent(operation="tests.repeat", transaction="late", on_lost_lease="resume")
def repeated_view(request: Any) -> HttpResponse:
    return request.idempotency.run(repeated)  # type: ignore[no-any-return]


@idempotent(operation="tests.ride", transaction="late", on_lost_lease="resume", not_executed=is_refusal)
def ride_view(request: Any) -> HttpResponse:
    return request.idempotency.run(ride)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _served(settings: Any) -> None:
    Provider.is_away = True
    settings.ROOT_URLCONF = type(
        "Urls", (), {"urlpatterns": [path("pay", pay), path("ride", ride_view), path("repeat", repeated_view)]}
    )


def let_pass(seconds: float) -> None:
    """The record is older by as much."""
    ago = timedelta(seconds=seconds)
    IdempotencyKey.objects.update(created_at=F("created_at") - ago, last_run_at=F("last_run_at") - ago)


def test_quick_retries_in_a_short_outage_do_not_use_the_attempts_up(alice: Person) -> None:
    """Every 0.3 s for five seconds; then the provider is back."""
    waits = []
    for _ in range(16):
        answer = alice.post("/pay")
        assert (answer.status_code, answer.json()["code"]) == (503, "idempotency_not_executed")
        waits.append(int(answer.headers["Retry-After"]))
        let_pass(0.3)
    assert Ran.count <= 4, "most came before their time and are not counted"
    assert max(waits) > waits[0], "each wait is longer"
    Provider.is_away = False
    let_pass(waits[-1])
    assert alice.post("/pay").status_code == 201


def test_a_retry_before_its_time_is_not_counted(alice: Person) -> None:
    alice.post("/pay")
    alice.post("/pay")  # the first retry may come at once
    ran, attempts = Ran.count, IdempotencyKey.objects.get().attempts
    for _ in range(20):
        assert alice.post("/pay").status_code == 503
    assert (Ran.count, IdempotencyKey.objects.get().attempts) == (ran, attempts) == (2, 2)


def test_each_wait_that_is_kept_leads_to_one_more_attempt_and_the_cap_ends_them(alice: Person) -> None:
    waits = []
    while (answer := alice.post("/pay")).status_code == 503:
        waits.append(int(answer.headers["Retry-After"]))
        let_pass(waits[-1])
        assert len(waits) < 30
    assert waits[:9] == [2, 2, 4, 8, 16, 32, 64, 128, 256]
    assert Ran.count == 10
    assert (answer.status_code, answer.json()["code"]) == (500, "idempotency_attempts_exhausted")
    assert sum(waits) >= 600, "the span that the policy states"


def test_without_a_span_the_attempts_are_counted_at_once(alice: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"ATTEMPTS_SPAN": 0, "ATTEMPTS": 3}
    assert [alice.post("/pay").status_code for _ in range(4)] == [503, 503, 503, 500]


def test_what_the_policy_calls_proof_is_proof_inside_an_effect_too(alice: Person) -> None:
    """The step is not in doubt: nobody has to be asked before it is called again."""
    alice.client.raise_request_exception = False
    alice.post("/ride")
    record = IdempotencyKey.objects.get()
    assert "charged" not in record.progress
    Provider.is_away = False
    assert alice.post("/ride").status_code == 201


def test_quick_retries_of_an_operation_do_not_make_it_a_dead_letter(alice: Person) -> None:
    for _ in range(30):
        alice.post("/ride")
        let_pass(0.3)
    assert IdempotencyKey.objects.get().attempts < 10
    IdempotencyKey.objects.update(attempts=10)
    maintenance.resume()
    assert IdempotencyKey.objects.get().status == "unknown", "it is younger than the span"


@pytest.mark.parametrize(("is_away", "status"), [(False, "completed"), (True, "dead_letter")])
def test_an_operation_whose_attempts_were_used_up_early_is_tried_at_the_end_of_the_span(
    alice: Person, is_away: bool, status: str
) -> None:
    alice.post("/repeat")
    IdempotencyKey.objects.update(attempts=10)
    let_pass(601)
    Provider.is_away = is_away
    before = Ran.count
    for _ in range(3):
        maintenance.resume()
        IdempotencyKey.objects.filter(status="unknown").update(reconcile_after=F("created_at"))
    assert (IdempotencyKey.objects.get().status, Ran.count - before) == (status, 1)
