"""What `python -m benchmarks` serves: one view, plain and of Django REST framework, bare and protected in each way.

The view reads a user and writes a ledger entry.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

import django_idempotency
from benchmarks import by_hand
from django_idempotency import signals
from django_idempotency.conf import Arguments
from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin
from testproject.payments.models import LedgerEntry


def write_entry() -> dict[str, Any]:
    owner = User.objects.get(username="alice")
    entry = LedgerEntry.objects.create(owner=owner, reference="benchmark", account="current", amount=1)
    return {"id": entry.pk, "amount": entry.amount}


def work(request: HttpRequest) -> HttpResponse:
    _ = request.body  # an unread body of a megabyte would stall the connection
    return JsonResponse(write_entry(), status=201)


def rest_work(request: Any) -> Any:
    """Render now, because storing a response by hand needs its bytes."""
    response: Any = Response(write_entry(), status=201)
    response.accepted_renderer, response.accepted_media_type = request.accepted_renderer, "application/json"
    response.renderer_context = request.parser_context
    return response.render()


def act_outside(request: HttpRequest) -> HttpResponse:
    """Have an effect that no database takes back: a line in a file, with the key."""
    with open(os.environ["BENCHMARK_LEDGER"], "a") as ledger:
        ledger.write(f"{request.headers['Idempotency-Key']}\n")
    return JsonResponse({"run": str(uuid4()), "code": django_idempotency.__file__}, status=201)


bare = transaction.atomic(work)
leased = idempotent(operation="leased", mode="leased", share_anonymous=True, cache=True)(work)
atomic = idempotent(operation="atomic", mode="atomic", share_anonymous=True, cache=True)(work)
outside = idempotent(operation="outside", mode="leased", transaction="late", share_anonymous=True)(act_outside)


class Bare(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)
    renderer_classes = (JSONRenderer,)

    def post(self, request: Any) -> Any:
        with transaction.atomic():
            return Response(write_entry(), status=201)


class LeasedByHand(Bare):
    def post(self, request: Any) -> Any:
        return by_hand.leased(rest_work, request)


class AtomicByHand(Bare):
    def post(self, request: Any) -> Any:
        return by_hand.atomic(rest_work, request)


class Leased(IdempotentMixin, Bare):
    idempotency = Arguments({"operation": "rest-leased", "mode": "leased", "share_anonymous": True})

    def post(self, request: Any) -> Any:
        return Response(write_entry(), status=201)


class Atomic(Leased):
    idempotency = Arguments({"operation": "rest-atomic", "mode": "atomic", "share_anonymous": True})


def receive(**payload: object) -> None:
    """Do nothing, as a project's receiver of a signal that it does not need."""


for number in range(int(os.environ.get("BENCHMARK_RECEIVERS", "0"))):
    for each in (signals.reserved, signals.completed, signals.replayed):
        each.connect(receive, dispatch_uid=f"benchmark {number}")

urlpatterns = [
    *(path(f"other/{number}", work) for number in range(int(os.environ.get("BENCHMARK_ROUTES", "0")))),
    path("bare", bare),
    path("leased/by-hand", partial(by_hand.leased, work)),
    path("leased", leased),
    path("atomic/by-hand", partial(by_hand.atomic, work)),
    path("atomic", atomic),
    path("outside", outside),
    path("rest/bare", Bare.as_view()),
    path("rest/leased/by-hand", LeasedByHand.as_view()),
    path("rest/leased", Leased.as_view()),
    path("rest/atomic/by-hand", AtomicByHand.as_view()),
    path("rest/atomic", Atomic.as_view()),
]
