"""A rate limiter of a real package, above and below `@idempotent`. A check warns about the second (W037)."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

decorators: Any = pytest.importorskip(
    "django_ratelimit.decorators", reason="NOT TESTED: django-ratelimit is not installed"
)

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def rate(group: str, request: HttpRequest) -> str:
    return "0/h" if "X-Busy" in request.headers else "100/h"


ratelimit = decorators.ratelimit(key="user", rate=rate)


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"run {Ran.again()}", status=201)


class Limited(IdempotentMixin, APIView):
    authentication_classes = [SessionAuthentication]
    permission_classes: Any = []

    @method_decorator(ratelimit)
    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, 201)


urlpatterns = [
    path("above", ratelimit(idempotent(view)), name="above"),
    path("below", idempotent(ratelimit(view)), name="below"),
    path("rest", Limited.as_view(), name="rest"),
]

BUSY = {"X-Busy": "yes"}


def test_a_rate_limit_above_the_protection_stores_nothing(alice: Person) -> None:
    limited = alice.post("/above", headers=BUSY)
    assert (limited.status_code, IdempotencyKey.objects.count()) == (403, 0)
    assert [alice.post("/above").status_code, alice.post("/above", headers=BUSY).status_code] == [201, 403]
    assert Ran.count == 1


@pytest.mark.parametrize("route", ["/below", "/rest"])
def test_the_response_of_a_rate_limit_below_the_protection_is_stored(alice: Person, route: str) -> None:
    limited, later = alice.post(route, headers=BUSY), alice.post(route)
    assert (limited.status_code, later.status_code, later["Idempotency-Replayed"]) == (403, 403, "true")
    assert Ran.count == 0
