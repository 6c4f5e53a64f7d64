"""One ledger entry per request, in each mode. Each run is noted, waits at the gate, then books."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from django_idempotency.decorators import IdempotentRequest, idempotent
from testproject.payments import json_bodies
from testproject.payments.authentication import authenticated, by_token
from testproject.payments.models import LedgerEntry
from tests.kit.journal import Journal


def begun(request: HttpRequest) -> dict[str, Any]:
    wishes = json_bodies.read(request)
    journal = Journal(settings.VAR)
    journal.note(wishes["account"])
    journal.pass_gate()
    return wishes


def book(wishes: dict[str, Any]) -> HttpResponse:
    reference = str(uuid4())
    LedgerEntry.objects.create(reference=reference, account=wishes["account"], amount=1)
    if wishes.get("fail"):
        raise RuntimeError("failed after the booking, as the request asked")
    return HttpResponse(status=204) if wishes.get("empty") else JsonResponse({"reference": reference}, status=201)


def booked(request: HttpRequest) -> HttpResponse:
    return book(begun(request))


@csrf_exempt
@authenticated(by_token)
@idempotent(operation="bookings.late", transaction="late")
def late(request: IdempotentRequest) -> HttpResponse:
    wishes = begun(request)
    return request.idempotency.finish(lambda: book(wishes))


def of_alice_or_bob(operation: str, **arguments: Any) -> Any:
    return csrf_exempt(authenticated(by_token)(idempotent(operation=operation, **arguments)(booked)))


whole = of_alice_or_bob("bookings.whole")
atomic = of_alice_or_bob("bookings.atomic", mode="atomic")
by_session = csrf_exempt(idempotent(operation="bookings.session")(booked))


@csrf_exempt
def enter(request: HttpRequest) -> HttpResponse:
    """Take somebody at their word."""
    login(request, User.objects.get(username=json_bodies.read(request)["name"]))
    return HttpResponse(status=204)
