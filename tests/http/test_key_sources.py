"""A key may come from elsewhere than the profile's header, and single requests may be left unprotected."""

import json
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.key_sources import any_header, json_field, path_argument
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

KEY, OTHER = "8e03978e-40d5-43dd-bc93-6894a57f9324", "0b7d0cde-6a5a-4a0e-9f0e-d5b0a3f1c7a1"


def view(request: Any, **arguments: str) -> HttpResponse:
    Ran.count += 1
    return HttpResponse(f"done {Ran.count}", status=201)


async def async_view(request: HttpRequest) -> HttpResponse:
    return view(request)


class Rest(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    permission_classes = ()
    idempotency = {"mode": "atomic", "key_source": json_field("key"), "required": False}

    def post(self, request: Any) -> Response:
        view(request)
        return Response({"ran": Ran.count, "amount": request.data["amount"]}, status=201)


def is_dry_run(request: HttpRequest) -> bool:
    return "dry-run" in request.GET


urlpatterns = [
    path("headers", idempotent(key_source=any_header("Idempotency-Key", "X-Request-Id"))(view)),
    path("body", idempotent(key_source=json_field("key"))(view)),
    path("optional", idempotent(key_source=json_field("key"), required=False)(view)),
    path("async", idempotent(key_source=json_field("key"))(async_view)),
    path("orders/<str:key>", idempotent(operation="orders", key_source=path_argument("key"))(view)),
    path("rest", Rest.as_view()),
    path("number", idempotent(key_source=lambda request: 7)(view)),
    path("skipped", idempotent(skip=is_dry_run)(view)),
    path("truthy", idempotent(skip=lambda request: "yes")(view)),
]


def post(person: Person, where: str, body: Any = None, **headers: str) -> Any:
    text = json.dumps(body if body is not None else {})
    return person.client.post(where, text, content_type="application/json", headers=headers)


@pytest.mark.parametrize("first", ["Idempotency-Key", "X-Request-Id"])
@pytest.mark.parametrize("second", ["Idempotency-Key", "X-Request-Id"])
def test_one_of_several_headers_has_the_key(alice: Person, first: str, second: str) -> None:
    answers = [post(alice, "/headers", **{name: KEY}) for name in (first, second)]
    assert [each.content for each in answers] == [b"done 1", b"done 1"]
    assert answers[1]["Idempotency-Replayed"] == "true"


def test_two_headers_may_agree_and_must_not_differ(alice: Person) -> None:
    names = ("Idempotency-Key", "X-Request-Id")
    assert post(alice, "/headers", **dict.fromkeys(names, KEY)).status_code == 201
    refused = post(alice, "/headers", **dict(zip(names, (KEY, OTHER), strict=True)))
    assert (refused.status_code, refused.json()["reason"]) == (400, "several_values")


@pytest.mark.parametrize("where", ["/body", "/async", "/rest"])
def test_a_member_of_the_body_is_the_key(alice: Person, where: str) -> None:
    bodies = [
        {"key": KEY, "amount": 1},
        {"amount": 1, "key": KEY},
        {"key": KEY, "amount": 2},
        {"key": OTHER, "amount": 1},
    ]
    answers = [post(alice, where, body) for body in bodies]
    assert [each.status_code for each in answers] == [201, 201, 422, 201]
    assert answers[0].content == answers[1].content
    assert Ran.count == 2


@pytest.mark.parametrize("body", [{}, [], "text", {"key": None}])
def test_a_body_without_the_member_has_no_key(alice: Person, body: Any) -> None:
    refused = post(alice, "/body", body, **{"Idempotency-Key": KEY})
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_missing")
    assert "Idempotency-Key:" not in refused.json()["detail"], "the header is not read"
    assert post(alice, "/optional", body).status_code == 201
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_a_body_that_is_no_json_has_no_key(alice: Person, text: bytes) -> None:
    refused = alice.client.post("/body", text, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_missing")


@pytest.mark.parametrize(
    ("where", "key"), [("/body", 5), ("/optional", 5), ("/rest", {}), ("/body", ""), ("/number", "")]
)
def test_what_is_no_text_is_no_key(alice: Person, where: str, key: Any) -> None:
    refused = post(alice, where, {"key": key, "amount": 1})
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_invalid")
    assert Ran.count == 0


def test_an_argument_of_the_route_is_the_key(alice: Person) -> None:
    answers = [post(alice, f"/orders/{key}") for key in (KEY, KEY, OTHER)]
    assert [each.content for each in answers] == [b"done 1", b"done 1", b"done 2"]
    assert set(IdempotencyKey.objects.values_list("key", flat=True)) == {KEY, OTHER}


def test_a_request_that_is_skipped_runs_each_time(alice: Person) -> None:
    answers = [post(alice, "/skipped?dry-run", **{"Idempotency-Key": KEY}) for _ in range(2)]
    assert [each.content for each in answers] == [b"done 1", b"done 2"]
    assert not IdempotencyKey.objects.exists()
    assert post(alice, "/skipped").status_code == 400, "the others need their key"


def test_only_true_itself_skips(alice: Person) -> None:
    assert post(alice, "/truthy").status_code == 400
