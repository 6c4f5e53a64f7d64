"""What a client reads while nobody knows what its first request did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Value
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_idempotency.decorators import idempotent
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyKey
from tests.kit.http import Person


@idempotent(operation="tests.nobody_asks", receipts=True)
def crash(request: HttpRequest) -> HttpResponse:
    raise TimeoutError


@idempotent(operation="tests.restartable", on_lost_lease="restart")
def restartable(request: HttpRequest) -> HttpResponse:
    raise TimeoutError


@idempotent(operation="tests.newer_code")
def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=201)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("beginning", ["v4::", "v3:2027-01:"], ids=["a later release", "a secret that is new"])
def test_a_retry_that_meets_older_code_is_not_told_to_take_a_new_key(
    alice: Person, settings: Any, beginning: str
) -> None:
    """During a deployment newer code answered the request, and older code cannot compare what it stored."""
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", answer)]})
    assert alice.post("/it").status_code == 201
    record = IdempotencyKey.objects.get()
    IdempotencyKey.objects.update(fingerprint=record.fingerprint.replace("v3::", beginning))
    said = alice.post("/it").json()
    assert (said["code"], said["safe_new_key"]) == ("idempotency_outcome_unknown", False)


CHECKS = [(-60, 10), (3, 10), (90, 90), (7200, 3600)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("due_in", "wait"), CHECKS)
def test_a_client_is_told_to_come_back_for_the_next_check(alice: Person, settings: Any, due_in: int, wait: int) -> None:
    settings.ROOT_URLCONF = type(
        "Urls", (), {"urlpatterns": [path("it", crash), path("of/", include("django_idempotency.urls"))]}
    )
    alice.post("/it")
    IdempotencyKey.objects.update(reconcile_after=StatementNow() + Value(timedelta(seconds=due_in)))
    told = alice.post("/it")
    address = alice.client.get(told.json()["instance"])
    assert {int(told["Retry-After"]), int(address["Retry-After"])} <= {wait, wait - 1}
    assert address.json()["code"] == told.json()["code"] == "idempotency_outcome_unknown"


@pytest.mark.django_db(transaction=True)
def test_a_dead_letter_waits_for_a_person(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", crash)]})
    alice.post("/it")
    IdempotencyKey.objects.update(status="dead_letter", reconcile_after=None)
    assert alice.post("/it")["Retry-After"] == "3600"


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_that_may_be_restarted_runs_the_retry_that_came_in_time(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", restartable)]})
    for _attempt in range(2):
        alice.post("/it")
    told = alice.post("/it")
    assert (told.json()["code"], told["Retry-After"]) == ("idempotency_outcome_unknown", "2")


@pytest.mark.django_db(transaction=True)
def test_the_client_is_not_told_that_the_outcome_is_being_looked_into(alice: Person, settings: Any) -> None:
    """No reconciler is registered for the operation, so nobody looks into it."""
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", crash)]})
    alice.post("/it")
    said = alice.post("/it").json()
    assert (IdempotencyKey.objects.get().status, said["safe_new_key"]) == ("unknown", False)
    assert "check" not in said["detail"]
    assert "looked" not in said["detail"]
    assert "another key" in said["detail"]
