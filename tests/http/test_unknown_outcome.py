"""What a client reads while nobody knows what its first request did."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.http import Person


@idempotent(operation="tests.nobody_asks")
def crash(request: HttpRequest) -> HttpResponse:
    raise TimeoutError


@idempotent(operation="tests.newer_code")
def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=201)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("beginning", ["v3::", "v2:2027-01:"], ids=["a later release", "a secret that is new"])
def test_a_retry_that_meets_older_code_is_not_told_to_take_a_new_key(
    alice: Person, settings: Any, beginning: str
) -> None:
    """During a deployment newer code answered the request, and older code cannot compare what it stored."""
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", answer)]})
    assert alice.post("/it").status_code == 201
    record = IdempotencyKey.objects.get()
    IdempotencyKey.objects.update(fingerprint=record.fingerprint.replace("v2::", beginning))
    said = alice.post("/it").json()
    assert (said["code"], said["safe_new_key"]) == ("idempotency_outcome_unknown", False)


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
