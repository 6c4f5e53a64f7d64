"""Nothing was executed, whether the view says so or the policy proves it: the client gets the same 503."""

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.views import APIView

from django_idempotency import STRIPE
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

pytestmark = pytest.mark.django_db


def refused(error: BaseException) -> bool:
    return isinstance(error, ConnectionRefusedError)


def fails_once(error: type[Exception]) -> Callable[..., Any]:
    def view(request: Any) -> HttpResponse:
        if Ran.again() == 1:
            request.idempotency.derive("charge")
            raise error("planned")
        return JsonResponse({"run": Ran.count}, status=201)

    return view


def plain(error: type[Exception], **policy: Any) -> Any:
    return idempotent(not_executed=refused, **policy)(fails_once(error))


def asynchronous(error: type[Exception], **policy: Any) -> Any:
    view = fails_once(error)

    async def waiting(request: HttpRequest) -> Any:
        return view(request)

    return idempotent(not_executed=refused, **policy)(waiting)


def rest(error: type[Exception], **policy: Any) -> Any:
    view = fails_once(error)

    class Rest(IdempotentMixin, APIView):
        authentication_classes = (SessionAuthentication,)
        idempotency = {"not_executed": refused, **policy}

        def post(self, request: Any) -> Any:
            return view(request)

    return Rest.as_view()


@pytest.mark.parametrize("error", [NotExecuted, ConnectionRefusedError])
@pytest.mark.parametrize(
    "policy",
    [{}, {"transaction": "late"}, {"mode": "atomic"}, {"on_error": "store"}, {"profile": STRIPE}],
    ids=["whole", "late", "atomic", "store", "stripe"],
)
@pytest.mark.parametrize("made", [plain, asynchronous, rest])
def test_both_get_the_same_503(alice: Person, settings: Any, made: Any, policy: Any, error: type[Exception]) -> None:
    if made is asynchronous and policy.get("mode") == "atomic":
        pytest.skip("an async view is never atomic")
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", made(error, **policy), name="it")]})
    first = alice.post("/it")
    assert (first.status_code, first.get("Retry-After")) == (503, "2")
    members = first.json()["error"] if policy.get("profile") else first.json()
    assert members["code"] == "idempotency_not_executed"
    statuses = IdempotencyKey.objects.values_list("status", flat=True)
    assert [*statuses] == ([] if policy.get("mode") == "atomic" else ["failed_retryable"])
    assert (alice.post("/it").status_code, Ran.count) == (201, 2)


def test_what_is_not_proven_reaches_the_project(alice: Person, settings: Any) -> None:
    view = plain(TimeoutError)
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    assert alice.post("/it").status_code == 500
    assert IdempotencyKey.objects.get().status == "unknown"
