"""A key that anybody may send: in the body, where every caller has the same scope and nothing verifies the sender."""

from functools import partial
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import deliver_again, idempotent
from django_idempotency.key_sources import any_header, json_field, path_argument
from django_idempotency.rest_framework import IdempotentMixin
from tests.checks.messages import found, ids
from tests.kit.http import careful_wrapper


def receive(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def provider(request: HttpRequest) -> str:
    return "provider"


def by_account(request: HttpRequest) -> str:
    return str(request.headers["Stripe-Account"])


def by_user(request: HttpRequest) -> str:
    return (lambda: str(request.user.pk))()


def from_form(request: HttpRequest) -> str | None:
    return request.POST.get("id")


webhook = partial(idempotent, mode="atomic", scope=provider, key_source=json_field("id"))


@method_decorator(csrf_exempt, name="dispatch")
class Hook(View):
    @method_decorator(webhook())
    def post(self, request: HttpRequest) -> HttpResponse:
        return receive(request)


class RestHook(IdempotentMixin, APIView):
    permission_classes: Any = (AllowAny,)
    idempotency = {"mode": "atomic", "scope": lambda request: "provider", "key_source": json_field("id")}

    def post(self, request: Any) -> Response:
        return Response()


class SignedHook(RestHook):
    permission_classes = (IsAuthenticated,)


SHARED = {"scope": None, "share_anonymous": True, "guessable_anonymous": True}


@pytest.mark.parametrize(
    "view",
    [
        webhook()(receive),
        csrf_exempt(deliver_again(webhook()(receive))),
        webhook(key_source=from_form)(receive),
        webhook(**SHARED)(receive),
        Hook.as_view(),
        RestHook.as_view(),
    ],
)
def test_w044_a_stranger_may_send_the_key_of_an_event(settings: Any, view: Any) -> None:
    (message,) = found(settings, view)
    assert ids([message]) == ["W044"]
    assert "/api/0/" in message.msg


@pytest.mark.parametrize(
    "view",
    [
        webhook(verify=lambda request: True)(receive),
        webhook(scope=by_account)(receive),
        webhook(scope=by_user)(receive),
        webhook(scope=None)(receive),
        webhook(key_source=any_header("X-Id"))(receive),
        webhook(key_source=path_argument("key"))(receive),
        webhook(key_source=None)(receive),
        careful_wrapper(webhook()(receive)),
        SignedHook.as_view(),
    ],
)
def test_w044_is_silent_where_somebody_is_asked(settings: Any, view: Any) -> None:
    assert "W044" not in ids(found(settings, view))
