"""A view that returns something other than a response is told so by name, and its key is free again."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotAResponse
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

WRONG = {"tuple": (201, {"id": 7}), "dict": {"id": 7}, "NoneType": None}


class Returned:
    value: Any = None


def result(request: Any) -> Any:
    Ran.again()
    User.objects.create(username=f"run {Ran.count}")
    if "derive" in request.GET:
        request.idempotency.derive("charge")
    return Returned.value


@idempotent(mode="atomic")
def atomic(request: HttpRequest) -> Any:
    return result(request)


@idempotent(on_error="store")
def whole(request: HttpRequest) -> Any:
    return result(request)


@idempotent(transaction="late")
def late(request: HttpRequest) -> Any:
    Ran.again()
    if "derive" in request.GET:
        request.idempotency.derive("charge")  # type: ignore[attr-defined]
    return Returned.value


@idempotent(transaction="late")
def written(request: HttpRequest) -> Any:
    return request.idempotency.finish(lambda: result(request))  # type: ignore[attr-defined]


@idempotent
async def asynchronous(request: HttpRequest) -> Any:
    Ran.again()
    if "derive" in request.GET:
        request.idempotency.derive("charge")  # type: ignore[attr-defined]
    return Returned.value


class Rest(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)

    def post(self, request: Any) -> Any:
        return result(request)


class RestAtomic(Rest):
    idempotency = {"mode": "atomic"}


VIEWS = {
    "atomic": atomic,
    "whole": whole,
    "late": late,
    "written": written,
    "async": asynchronous,
    "rest": Rest.as_view(),
    "rest-atomic": RestAtomic.as_view(),
}
urlpatterns = [path(name, view, name=name) for name, view in VIEWS.items()]


@pytest.mark.parametrize("kind", list(WRONG))
@pytest.mark.parametrize("name", list(VIEWS))
def test_the_key_is_free_again(alice: Person, name: str, kind: str) -> None:
    Returned.value = WRONG[kind]
    alice.client.raise_request_exception = True
    with pytest.raises(NotAResponse, match=rf"(?s)'{name}'.*\b{kind}\b.*Return an HttpResponse"):
        alice.post(f"/{name}")
    assert User.objects.count() == 1, "the view's writes roll back"
    Returned.value = HttpResponse("done", status=201)
    right = alice.post(f"/{name}")
    assert (right.status_code, right.content, Ran.count) == (201, b"done", 2)
    assert alice.post(f"/{name}").content == b"done"
    assert Ran.count == 2


@pytest.mark.parametrize("name", ["whole", "late", "written", "async", "rest"])
def test_after_an_external_call_the_outcome_is_unknown(alice: Person, name: str) -> None:
    Returned.value = {"id": 7}
    assert alice.post(f"/{name}?derive").status_code == 500
    assert IdempotencyKey.objects.get().status == "unknown"
    assert alice.post(f"/{name}?derive").status_code == 409
    assert Ran.count == 1
