"""Callers whom a JSON Web Token names: authentication runs before a replay, and each caller has keys of their own."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import path
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

simplejwt = pytest.importorskip("rest_framework_simplejwt", reason="NOT TESTED: simplejwt is not installed")

from rest_framework_simplejwt.authentication import JWTAuthentication  # noqa: E402 - only if it is installed
from rest_framework_simplejwt.tokens import AccessToken  # noqa: E402

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


class Pay(IdempotentMixin, APIView):
    authentication_classes = (JWTAuthentication,)
    permission_classes = (IsAuthenticated,)
    idempotency = {"mode": "atomic", "operation": "pay"}

    def post(self, request: Any) -> Response:
        return Response({"ran": Ran.again(), "by": request.user.username}, status=201)


@idempotent(mode="atomic", operation="function")
@api_view(["POST"])
@authentication_classes([JWTAuthentication])
def pay(request: Any) -> Response:
    return Response({"ran": Ran.again(), "by": request.user.username}, status=201)


urlpatterns = [path("class", Pay.as_view()), path("function", pay)]


def token(name: str, lifetime: timedelta = timedelta(minutes=5)) -> dict[str, str]:
    made = AccessToken.for_user(User.objects.get_or_create(username=name)[0])
    made.set_exp(lifetime=lifetime)
    return {"Authorization": f"Bearer {made}"}


@pytest.mark.parametrize("where", ["/class", "/function"])
def test_a_repeat_with_a_fresh_token_gets_the_first_response(anonymous: Person, where: str) -> None:
    first = anonymous.post(where, headers=token("ada"))
    second = anonymous.post(where, headers=token("ada", timedelta(minutes=10)))
    assert (first.status_code, second.content, second["Idempotency-Replayed"]) == (201, first.content, "true")
    assert anonymous.post(where, headers=token("bob")).json() == {"ran": 2, "by": "bob"}


@pytest.mark.parametrize("where", ["/class", "/function"])
def test_an_expired_token_gets_no_replay(anonymous: Person, where: str) -> None:
    anonymous.post(where, headers=token("ada"))
    refused = anonymous.post(where, headers=token("ada", timedelta(minutes=-5)))
    assert (refused.status_code, "Idempotency-Replayed" in refused) == (401, False)
    assert Ran.count == 1
