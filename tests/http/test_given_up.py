"""A view that caught a database's error, or asked for a rollback, and answers all the same."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated
from tests.kit.http import Person, Ran, same_answer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]
MODES: list[Any] = [{}, {"mode": "atomic"}]


def taken() -> int:
    """The status of a view that finds its name taken."""
    Ran.again()
    Group.objects.create(name="written before")
    try:
        Group.objects.create(name="taken")
    except IntegrityError:
        return 409
    return 201


def asked_for() -> int:
    """The status of a view that wants its writes back."""
    Ran.again()
    Group.objects.create(name="written before")
    transaction.set_rollback(True)
    return 422


@pytest.fixture(autouse=True)
def _taken() -> None:
    Group.objects.create(name="taken")


def serve(settings: Any, view: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})


@pytest.mark.parametrize("declared", MODES, ids=["leased", "atomic"])
@pytest.mark.parametrize("make", [taken, asked_for])
@pytest.mark.parametrize("rest", [False, True], ids=["plain", "rest"])
def test_a_refusal_is_stored_and_what_was_written_before_is_not(
    alice: Person, settings: Any, declared: Any, make: Callable[[], int], rest: bool
) -> None:
    class Rest(IdempotentMixin, Authenticated):
        idempotency = declared

        def post(self, request: Request) -> Response:
            return Response({}, status=make())

    def plain(request: HttpRequest) -> HttpResponse:
        return JsonResponse({}, status=make())

    serve(settings, Rest.as_view() if rest else idempotent(**declared)(plain))
    first, second = (alice.post("/it") for _ in range(2))
    assert first.status_code == (409 if make is taken else 422), first.content
    assert same_answer(first, second)
    assert (Ran.count, list(Group.objects.values_list("name", flat=True))) == (1, ["taken"])
    assert IdempotencyKey.objects.get().status == "completed"


@pytest.mark.parametrize("key", ["", None], ids=["with a key", "without"])
def test_and_so_is_that_of_finish(alice: Person, settings: Any, key: str | None) -> None:
    @idempotent(transaction="late", required=False)
    def view(request: Any) -> HttpResponse:
        answer: HttpResponse = request.idempotency.finish(lambda: JsonResponse({}, status=taken()))
        return answer

    serve(settings, view)
    headers = {} if key is None else {"Idempotency-Key": "2f0c0b1e-6a0e-4d3c-8b5d-1f0a3f6f1a01"}
    assert alice.client.post("/it", headers=headers).status_code == 409
    assert list(Group.objects.values_list("name", flat=True)) == ["taken"]
    assert alice.client.post("/it", headers=headers).status_code == 409
    assert Ran.count == (2 if key is None else 1)


@pytest.mark.parametrize("declared", MODES, ids=["leased", "atomic"])
def test_a_success_cannot_be_one(alice: Person, settings: Any, declared: Any) -> None:
    @idempotent(**declared)
    def view(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"status": taken()}, status=201)

    serve(settings, view)
    alice.client.raise_request_exception = True
    with pytest.raises(transaction.TransactionManagementError, match=r"status 201.*with transaction\.atomic"):
        alice.post("/it")
    assert list(Group.objects.values_list("name", flat=True)) == ["taken"]
