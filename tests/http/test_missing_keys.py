"""A refused request is told how to send what was missing."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.views import APIView

from django_idempotency import STRIPE, Profile
from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

EXAMPLE = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def view(request: Any) -> HttpResponse:
    return HttpResponse("done", status=201)


class Rest(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    permission_classes = ()

    def post(self, request: Any) -> HttpResponse:
        return view(request)


def nobody(request: HttpRequest) -> str:
    return ""


VIEWS = {
    "plain": idempotent(view),
    "rest": Rest.as_view(),
    "strict": idempotent(profile=Profile(name="strict", strict=True))(view),
    "own": idempotent(profile=Profile(name="own", header="X-Request-Id"))(view),
    "stripe": idempotent(profile=STRIPE)(view),
    "scoped": idempotent(scope=nobody)(view),
}
urlpatterns = [path(name, each, name=name) for name, each in VIEWS.items()]


def message(response: Any) -> str:
    members = response.json()
    return str(members["error"]["message"] if "error" in members else members["detail"])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("plain", f"Idempotency-Key: {EXAMPLE}"),
        ("rest", f"Idempotency-Key: {EXAMPLE}"),
        ("strict", f'Idempotency-Key: "{EXAMPLE}"'),
        ("own", f"X-Request-Id: {EXAMPLE}"),
        ("stripe", f"Idempotency-Key: {EXAMPLE}"),
    ],
)
def test_a_missing_key_shows_the_header_to_send(alice: Person, name: str, line: str) -> None:
    refused = alice.post(f"/{name}", key=None)
    assert refused.status_code == 400
    assert line in message(refused)
    header, value = line.split(": ")
    assert alice.post(f"/{name}", key=None, headers={header: value}).status_code == 201, "the example is a key"


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("plain", "X-Idempotency-Key"),
        ("rest", "X-Idempotency-Key"),
        ("plain", "Idempotent-Key"),
        ("own", "Idempotency-Key"),
        ("stripe", "X-Idempotency-Key"),
    ],
)
def test_a_key_in_another_header_is_named(alice: Person, name: str, sent: str) -> None:
    refused = alice.post(f"/{name}", key=None, headers={sent: "my-secret-key"})
    assert refused.status_code == 400
    assert f"The request has the header {sent}, which is not read" in message(refused)
    assert "my-secret-key" not in refused.content.decode()
    assert "which is not read" not in message(alice.post(f"/{name}", key=None))


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", ["plain", "rest", "stripe"])
def test_a_developer_is_told_what_an_endpoint_without_login_needs(
    anonymous: Person, settings: Any, name: str, debug: bool
) -> None:
    settings.DEBUG = debug
    refused = anonymous.post(f"/{name}")
    assert refused.status_code == 403
    assert ("share_anonymous" in message(refused), "`scope`" in message(refused)) == (debug, debug)


def test_a_developer_is_told_that_the_scope_function_found_nobody(alice: Person, settings: Any) -> None:
    settings.DEBUG = True
    assert "scope function returned no principal" in message(alice.post("/scoped"))
