"""`verify` rejects a request before its key is looked up: nobody uses up or reads the key of another's event."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import exceptions
from django_idempotency.decorators import idempotent
from django_idempotency.key_sources import json_field
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

ninja = pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")

from django_idempotency.ninja import idempotent_operation  # noqa: E402 - only if it is installed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

SECRET = b"whsec"


def is_signed(request: HttpRequest) -> bool:
    expected = hmac.new(SECRET, request.body, "sha256").hexdigest()
    return hmac.compare_digest(request.headers.get("X-Signature", ""), expected)


EVENTS: dict[str, Any] = {
    "mode": "atomic",
    "key_source": json_field("id"),
    "scope": lambda request: "provider",
    "verify": is_signed,
}


def book(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"booked {Ran.again()}")


async def abook(request: HttpRequest) -> HttpResponse:
    return book(request)


class Book(IdempotentMixin, APIView):
    authentication_classes = permission_classes = ()
    idempotency = EVENTS

    def post(self, request: Any) -> Response:
        return Response({"booked": Ran.again()})


api = ninja.NinjaAPI(urls_namespace="verified")


@api.post("/events")  # type: ignore[untyped-decorator]
@idempotent_operation(**EVENTS)
def ninja_book(request: HttpRequest) -> Any:
    return {"booked": Ran.again()}


def inner(request: HttpRequest) -> HttpResponse:
    return idempotent(**EVENTS)(book)(request)


urlpatterns = [
    path("plain", idempotent(**EVENTS)(book)),
    path("async", idempotent(**{**EVENTS, "mode": "leased"})(abook)),
    path("rest", Book.as_view(), name="rest"),
    path("ninja/", api.urls),
    path("opened", idempotent(**EVENTS, receipts=True)(book)),
    path("inner", idempotent(mode="atomic", key_source=json_field("id"), scope=EVENTS["scope"])(inner)),
    path("skipped", idempotent(**EVENTS, skip=lambda request: True)(book)),
    path("optional", idempotent(mode="atomic", required=False, verify=is_signed, share_anonymous=True)(book)),
    path("idempotency/", include("django_idempotency.urls")),
]
ALL = ["/plain", "/async", "/rest", "/ninja/events"]


def deliver(person: Person, where: str, signed: bool = True, event: str = "evt_1") -> Any:
    body = json.dumps({"id": event})
    signature = hmac.new(SECRET if signed else b"guessed", body.encode(), "sha256").hexdigest()
    return person.send(where, body, "application/json", key=None, headers={"X-Signature": signature})


@pytest.mark.parametrize("where", ALL)
def test_a_forged_event_uses_up_no_key_and_is_told_nothing(anonymous: Person, where: str) -> None:
    forged = deliver(anonymous, where, signed=False)
    assert (forged.status_code, Ran.count, IdempotencyKey.objects.count()) == (403, 0, 0)
    booked = deliver(anonymous, where)
    assert (booked.status_code, Ran.count) == (200, 1)
    again, forged = deliver(anonymous, where), deliver(anonymous, where, signed=False)
    assert (again.content, again["Idempotency-Replayed"], Ran.count) == (booked.content, "true", 1)
    assert (forged.status_code, booked.content in forged.content) == (403, False)


@pytest.mark.parametrize("where", ["/inner", "/skipped", "/optional"])
def test_a_request_that_runs_without_a_key_of_its_own_is_verified_too(anonymous: Person, where: str) -> None:
    assert deliver(anonymous, where, signed=False, event="forged").status_code == 403
    assert Ran.count == 0
    assert deliver(anonymous, where).status_code == 200


def test_a_receipt_of_it_needs_the_signature(anonymous: Person) -> None:
    deliver(anonymous, "/opened")
    told = anonymous.client.get("/idempotency/keys/", {"path": "/opened"}, headers={"Idempotency-Key": "evt_1"})
    assert told.status_code == 403
    there = anonymous.client.get(f"/idempotency/operations/{IdempotencyKey.objects.get().pk}/")
    assert there.status_code == 404


@pytest.mark.parametrize("result", [None, 1, "yes", False])
def test_only_true_lets_a_request_in(anonymous: Person, settings: Any, result: object) -> None:
    view = idempotent(**{**EVENTS, "verify": lambda request: result})(book)
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view)]})
    assert deliver(anonymous, "/it").status_code == 403


def test_it_is_no_coroutine_function() -> None:
    async def signed(request: HttpRequest) -> bool:
        return True

    with pytest.raises((TypeError, exceptions.Misplaced), match="verify"):
        idempotent(verify=signed)
