"""What a scope function returns is a text or a refusal; nothing is turned into a text that somebody else may share."""

import logging
from collections.abc import Callable
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

pytestmark = pytest.mark.django_db


class Tenant:
    def __str__(self) -> str:
        return "Acme"


def tenant(request: HttpRequest) -> Any:
    return Tenant()


def serve(settings: Any, view: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="pay")]})


def counted(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


WRONG: list[Callable[[Any], Any]] = [
    tenant,
    lambda request: request.user,
    lambda request: 7,
    lambda request: b"acme",
    lambda request: True,
    lambda request: ("acme",),
]


@pytest.mark.parametrize("scope", WRONG)
def test_what_is_no_text_is_refused_and_named(
    alice: Person, scope: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    serve(settings, idempotent(scope=scope)(counted))
    with caplog.at_level(logging.ERROR, "django_idempotency"):
        refused = [who.post("/it") for who in (alice, Person("bob"), Person())]
    assert [(each.status_code, each.json()["code"]) for each in refused] == [(403, "idempotency_principal_missing")] * 3
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)
    assert len(caplog.messages) == 3
    assert all("'pay'" in each and "`scope`" in each and "str" in each for each in caplog.messages)


def test_the_setting_is_named_where_the_setting_is_wrong(
    alice: Person, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.IDEMPOTENCY = {"SCOPE": tenant}
    serve(settings, idempotent(counted))
    assert alice.post("/it").status_code == 403
    assert "IDEMPOTENCY['SCOPE']" in caplog.text
    assert "Tenant" in caplog.text


@pytest.mark.parametrize("nobody", ["", None])
def test_an_empty_text_is_a_refusal_and_no_mistake(
    alice: Person, settings: Any, nobody: Any, caplog: pytest.LogCaptureFixture
) -> None:
    serve(settings, idempotent(scope=lambda request: nobody)(counted))
    assert alice.post("/it").status_code == 403
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_scope_that_is_no_text_is_refused_in_django_rest_framework_too(alice: Person, settings: Any) -> None:
    class Answer(IdempotentMixin, APIView):
        permission_classes = ()
        idempotency = {"scope": lambda request: request.user}

        def post(self, request: Request) -> Response:
            return Response({"run": Ran.again()}, 201)

    serve(settings, Answer.as_view())
    assert [who.post("/it").status_code for who in (alice, Person(), Person())] == [403] * 3
    assert Ran.count == 0
