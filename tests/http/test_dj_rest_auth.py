"""dj-rest-auth: its login names the caller by a cookie, and its own views may be protected with the project's."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import path
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.protection import protect_all
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import KEY, Ran

pytest.importorskip("dj_rest_auth", reason="NOT TESTED: dj-rest-auth is not installed")
pytest.importorskip("rest_framework_simplejwt", reason="NOT TESTED: simplejwt is not installed")

from dj_rest_auth.app_settings import api_settings
from dj_rest_auth.jwt_auth import JWTCookieAuthentication
from dj_rest_auth.views import LoginView, LogoutView, PasswordChangeView

from django_idempotency.decorators import exempt

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

PASSWORD, OTHER_PASSWORD = "correct horse battery", "staple battery horse"

BY_COOKIE: Any = {"authentication_classes": [JWTCookieAuthentication]}


class Pay(IdempotentMixin, APIView):
    authentication_classes = (JWTCookieAuthentication,)
    permission_classes = (IsAuthenticated,)
    idempotency = {"mode": "atomic", "operation": "pay"}

    def post(self, request: Any) -> Response:
        return Response({"ran": Ran.again(), "by": request.user.username}, status=201)


urlpatterns = protect_all(
    [
        path("pay", Pay.as_view()),
        path("auth/login/", exempt(LoginView.as_view())),
        path("auth/logout/", exempt(LogoutView.as_view())),
        path("auth/password/change/", PasswordChangeView.as_view(**BY_COOKIE)),
    ],
    packages=["dj_rest_auth"],
    mode="atomic",
)


@pytest.fixture(autouse=True)
def _cookies_name_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"USE_JWT": True, "JWT_AUTH_COOKIE": "access", "JWT_AUTH_REFRESH_COOKIE": "refresh"}.items():
        monkeypatch.setattr(api_settings, name, value)  # it reads REST_AUTH only once


def post(client: Client, where: str, body: Any = None, key: str | None = KEY) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(where, body or {}, content_type="application/json", headers=headers)


def log_in(name: str, password: str = PASSWORD) -> Client:
    if not User.objects.filter(username=name).exists():
        User.objects.create_user(name, password=PASSWORD)
    client = Client()
    answer = post(client, "/auth/login/", {"username": name, "password": password}, key=None)
    assert (answer.status_code, "access" in client.cookies) == (200, True), answer.content
    return client


def test_a_retry_after_another_login_gets_the_first_response() -> None:
    first, second = (post(log_in("ada"), "/pay") for _ in range(2))
    assert (first.status_code, second.content, second["Idempotency-Replayed"]) == (201, first.content, "true")
    assert post(log_in("bob"), "/pay").json() == {"ran": 2, "by": "bob"}


def test_after_the_logout_there_is_no_replay() -> None:
    client = log_in("ada")
    post(client, "/pay")
    assert post(client, "/auth/logout/", key=None).status_code == 200
    refused = post(client, "/pay")
    assert (refused.status_code, "Idempotency-Replayed" in refused) == (401, False)
    assert Ran.count == 1


def test_its_own_views_are_protected_too() -> None:
    client = log_in("ada")
    body = {"new_password1": OTHER_PASSWORD, "new_password2": OTHER_PASSWORD}
    assert post(client, "/auth/password/change/", body, key=None).json()["code"] == "idempotency_key_missing"
    answers = [post(client, "/auth/password/change/", body) for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[1]["Idempotency-Replayed"] == "true"
    assert log_in("ada", OTHER_PASSWORD)
