"""The same charge in every framework and mode, protected by the package, and a few that are protected wrongly."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.security import django_auth
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import FingerprintRule
from django_idempotency.decorators import idempotent
from django_idempotency.ninja import idempotent_operation
from django_idempotency.rest_framework import IdempotentMixin
from testproject.payments.models import LedgerEntry
from tests.testing import home_made


def book(request: Any) -> dict[str, int]:
    """The work without a provider."""
    return {"id": LedgerEntry.objects.create(reference=request.idempotency.key, account="cash", amount=5).pk}


def plain(request: HttpRequest) -> HttpResponse:
    return JsonResponse(book(request), status=201, headers={"Location": "/booked"})


def called(request: Any) -> HttpResponse:
    """An external call with no transaction open, and then the writes with the response."""
    home_made.PROVIDER.send(request.body.decode(), request.idempotency.derive("charge"))
    response: HttpResponse = request.idempotency.finish(lambda: plain(request))
    return response


def called_anew(request: Any) -> HttpResponse:
    """It restarts after an error, and the provider has to take each try for another charge."""
    home_made.PROVIDER.send(request.body.decode(), uuid4().hex)
    return plain(request)


async def asynchronous(request: Any) -> HttpResponse:
    response: HttpResponse = await request.idempotency.afinish(lambda: plain(request))
    return response


class Rest(IdempotentMixin, APIView):
    authentication_classes = [SessionAuthentication]
    permission_classes = [IsAuthenticated]

    def post(self, request: Request) -> Response:
        return Response(book(request), status=201)


class AtomicRest(Rest):
    idempotency = {"mode": "atomic"}


ninja = NinjaAPI(auth=django_auth, urls_namespace="testing")


@ninja.post("/order")
@idempotent_operation()
def operation(request: HttpRequest) -> Any:
    return book(request)


def busy(request: HttpRequest, view: Any) -> HttpResponse:
    """A project's own error handling, to which a 409 is a failure."""
    response: HttpResponse = view(request)
    return HttpResponse(status=500) if response.status_code == 409 else response


def protected(view: Any, **policy: Any) -> Any:
    return csrf_exempt(login_required(idempotent(**policy)(view)))


leased = protected(plain, operation="testing.leased")
RIGHT = {
    "leased": leased,
    "atomic": protected(plain, operation="testing.atomic", mode="atomic"),
    "called": protected(called, operation="testing.called", transaction="late"),
    "async": protected(asynchronous, operation="testing.async", mode="leased"),
    "rest": Rest.as_view(),
    "atomic-rest": AtomicRest.as_view(),
}
WRONG = {
    "one-scope": (protected(plain, operation="testing.scope", scope=lambda request: "all"), "shared_between_users"),
    "no-fingerprint": (
        protected(plain, operation="testing.body", fingerprint=FingerprintRule(body=False)),
        "key_reused",
    ),
    "busy": (partial(busy, view=leased), "in_flight"),
    "released": (protected(called_anew, operation="testing.anew", on_error="release"), "new_downstream_key"),
}
urlpatterns = [
    path("ninja/", ninja.urls),
    *(path(name, view, name=name) for name, view in RIGHT.items()),
    *(path(name, view, name=name) for name, (view, _) in WRONG.items()),
    *(path(each.__name__, csrf_exempt(each()), name=each.__name__) for each in [*home_made.WRONG, home_made.Layer]),
    path("race", home_made.ChecksThenActs(), name="race"),
    path("middleware", plain, name="middleware"),
]
