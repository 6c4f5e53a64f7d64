"""A caller that the view itself would authenticate shares nothing with other callers."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@idempotent(share_anonymous=True)
def plain(request: HttpRequest) -> HttpResponse:
    """Reads the token itself."""
    owner = request.headers.get("Authorization", "nobody").removeprefix("Bearer ")
    return JsonResponse({"run": Ran.again(), "of": owner}, status=201)


class Rest(IdempotentMixin, APIView):
    authentication_classes = ()
    permission_classes = ()
    idempotency = {"share_anonymous": True}

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, 201)


urlpatterns = [path("plain", plain, name="plain"), path("rest", Rest.as_view(), name="rest")]


@pytest.mark.parametrize("where", ["/plain", "/rest"])
@pytest.mark.parametrize("value", ["Bearer ada", "Basic YWRhOg==", "ada"])
def test_an_unknown_credential_is_refused(anonymous: Person, where: str, value: str) -> None:
    refused = anonymous.post(where, headers={"Authorization": value})
    assert (refused.status_code, refused.json()["code"]) == (403, "idempotency_principal_missing")
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


def test_two_tokens_get_nothing_of_each_other(anonymous: Person) -> None:
    answers = [anonymous.post("/plain", headers={"Authorization": f"Bearer {who}"}) for who in ("ada", "bob")]
    assert {each.status_code for each in answers} == {403}
    assert anonymous.post("/plain").json()["of"] == "nobody"


def test_a_user_who_is_known_may_send_one(alice: Person) -> None:
    answers: list[Any] = [alice.post("/plain", headers={"Authorization": "Bearer ada"}) for _ in range(2)]
    assert [each.json()["run"] for each in answers] == [1, 1]
