"""A replay has the headers that the view set, and none that belongs to one caller, one connection or one moment."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import STANDARD_HEADERS, ReplyRule
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran, same_answer

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

OWN = {"X-Request-Cost": "7", "X-Custom": "kept", "Location": "/things/1", "ETag": '"1"', "X-Total-Count": "3"}
PRIVATE = (
    "Authorization",
    "WWW-Authenticate",
    "Authentication-Info",
    "Proxy-Authorization",
    "X-CSRFToken",
    "X-Auth-Token",
    "X-Api-Key",
    "X-Session-Id",
    "Set-Cookie2",
    "Cookie",
    "Date",
    "Age",
    "Server",
    "Connection",
    "Keep-Alive",
    "Server-Timing",
    "X-Request-ID",
)
SECRETS = dict.fromkeys(PRIVATE, "s3cr3t")


def respond(kind: Any = HttpResponse) -> Any:
    response = kind({"run": Ran.again()} if kind is Response else f"run {Ran.again()}", status=201)
    for name, value in {**OWN, **SECRETS}.items():
        response[name] = value
    response.set_cookie("remember", "s3cr3t")
    return response


@idempotent
def whole(request: HttpRequest) -> Any:
    return respond()


@idempotent(mode="atomic")
def atomic(request: HttpRequest) -> Any:
    return respond()


@idempotent(transaction="late")
def late(request: HttpRequest) -> HttpResponse:
    return request.idempotency.finish(respond)  # type: ignore[attr-defined, no-any-return]


@idempotent
async def asynchronous(request: HttpRequest) -> Any:
    return respond()


@idempotent(reply=ReplyRule(headers=STANDARD_HEADERS, extra_headers=["X-Custom"]))
def strict(request: HttpRequest) -> Any:
    return respond()


@idempotent
def with_token(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done", headers={"X-CSRFToken": get_token(request), "X-Xsrf": get_token(request)})


class Rest(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)

    def post(self, request: Any) -> Any:
        return respond(Response)


def numbered(request: HttpRequest) -> Any:
    """Stands for a middleware: it adds its header after the response was stored."""
    response = whole(request)
    response["X-Later"] = f"{response.get('X-Later', '')}added"
    return response


VIEWS: dict[str, Any] = {
    "whole": whole,
    "atomic": atomic,
    "late": late,
    "async": asynchronous,
    "rest": Rest.as_view(),
    "strict": strict,
    "numbered": numbered,
    "token": with_token,
}
urlpatterns = [path(name, view, name=name) for name, view in VIEWS.items()]


@pytest.mark.parametrize("name", ["whole", "atomic", "late", "async", "rest"])
def test_a_replay_has_what_the_view_set_and_no_secret(alice: Person, name: str) -> None:
    first, second = alice.post(f"/{name}"), alice.post(f"/{name}")
    assert {each: second[each] for each in OWN} == OWN
    for each in SECRETS:
        assert each in first
        del first[each]
        assert each not in second, each
    assert same_answer(first, second)
    assert "remember" not in second.cookies
    assert Ran.count == 1
    assert "s3cr3t" not in str(IdempotencyKey.objects.values().get())


def test_the_strict_list_drops_what_it_does_not_name(alice: Person) -> None:
    alice.post("/strict")
    second = alice.post("/strict")
    assert {each for each in OWN if each in second} == {"X-Custom", "Location", "ETag"}


def test_what_is_added_later_is_added_to_a_replay_once(alice: Person) -> None:
    first, second = alice.post("/numbered"), alice.post("/numbered")
    assert first["X-Later"] == second["X-Later"] == "added"
    assert "X-Later" not in IdempotencyKey.objects.get().response_headers


def test_a_csrf_token_in_a_header_is_not_stored(alice: Person) -> None:
    first = alice.post("/token")
    token = first["X-CSRFToken"]
    assert token not in IdempotencyKey.objects.get().response_headers
    assert first["X-Xsrf"] not in IdempotencyKey.objects.get().response_headers
