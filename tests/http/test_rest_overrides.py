"""Views of Django REST framework whose base classes wrap answers, explain nothing, or log in late."""

import base64
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.urls import path
from rest_framework.authentication import BasicAuthentication
from rest_framework.renderers import BrowsableAPIRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Reply, json_reply
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated
from tests.kit.http import Person, Ran, same_answer

pytestmark = pytest.mark.django_db


def serve(settings: Any, view: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view.as_view(), name="it")]})


@operation("tests.enveloped")
def enveloped(op: Op) -> Reply:
    return json_reply(201, {"run": Ran.again()})


class Envelope(Authenticated):
    """Puts everything that its views say into an envelope."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response.data = {"data": response.data}
        return super().finalize_response(request, response, *args, **kwargs)


class Returning(IdempotentMixin, Envelope):
    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, 201)


class Atomic(Returning):
    idempotency = {"mode": "atomic"}


class Finishing(IdempotentMixin, Envelope):
    idempotency = {"transaction": "late"}

    def post(self, request: Request) -> Any:
        return request.idempotency.finish(lambda: Response({"run": Ran.again()}, 201))  # type: ignore[attr-defined]


@pytest.mark.parametrize("view", [Returning, Atomic, Finishing])
def test_a_stored_answer_is_not_put_into_an_envelope_again(alice: Person, settings: Any, view: Any) -> None:
    serve(settings, view)
    first, second = alice.post("/it"), alice.post("/it")
    assert first.json() == {"data": {"run": 1}}
    assert same_answer(first, second)


def test_neither_is_the_answer_of_an_operation(alice: Person, settings: Any) -> None:
    class Running(IdempotentMixin, Envelope):
        idempotency = {"transaction": "late"}

        def post(self, request: Request) -> Any:
            return request.idempotency.run(enveloped)  # type: ignore[attr-defined]

    serve(settings, Running)
    first, second = alice.post("/it"), alice.post("/it")
    assert first.json() == {"run": 1}
    assert same_answer(first, second)


class Explaining(IdempotentMixin, Authenticated):
    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, 201)

    def get_exception_handler(self) -> Any:
        return lambda error, context: None  # everything is somebody else's


def test_a_handler_that_explains_nothing_makes_no_500_of_a_refusal(alice: Person, settings: Any) -> None:
    serve(settings, Explaining)
    missing, first, reused = alice.post("/it", key=None), alice.post("/it"), alice.post("/it", {"other": 1})
    assert [answer.status_code for answer in (missing, first, reused)] == [400, 201, 422]
    assert reused.json()["code"] == "idempotency_key_reused_with_different_payload"


class LoggingInLate(IdempotentMixin, APIView):
    authentication_classes = [BasicAuthentication]
    permission_classes = ()
    idempotency = {"share_anonymous": True}

    def perform_authentication(self, request: Request) -> None:
        """When somebody asks who it is, as DRF's guide suggests."""

    def post(self, request: Request) -> Response:
        return Response({"for": request.user.get_username()}, 201)


def test_an_answer_is_its_callers_own_also_where_authentication_comes_late(anonymous: Person, settings: Any) -> None:
    serve(settings, LoggingInLate)

    def asked(name: str) -> Any:
        credentials = base64.b64encode(f"{name}:secret".encode()).decode()
        return anonymous.post("/it", headers={"Authorization": f"Basic {credentials}"}).json()

    for name in ("ada", "bob"):
        User.objects.create_user(name, password="secret")
        assert asked(name) == {"for": name}
    assert IdempotencyKey.objects.count() == 2


class DeadlockedOnce(JSONRenderer):
    """Renders what it asks the database for, and is the victim of a deadlock the first time."""

    def render(self, *args: Any, **kwargs: Any) -> Any:
        if Ran.count == 1:
            raise OperationalError(1213, "planned")
        return super().render(*args, **kwargs)


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_second_run_still_says_what_its_answer_varies_by(alice: Person, settings: Any, mode: str) -> None:
    class Varying(IdempotentMixin, Authenticated):
        renderer_classes = [DeadlockedOnce, BrowsableAPIRenderer]  # two, so that Accept decides
        idempotency = {"mode": "atomic"} if mode == "atomic" else {"transaction": "late"}

        def post(self, request: Request) -> Any:
            if mode == "atomic":
                return self.write()
            return request.idempotency.finish(self.write)  # type: ignore[attr-defined]

        def write(self) -> Response:
            return Response({"run": Ran.again()}, 201)

    serve(settings, Varying)
    first = alice.post("/it")
    assert (first.json(), "Accept" in first["Vary"]) == ({"run": 2}, True)
    assert same_answer(first, alice.post("/it"))
