"""/conformance/…: bytes in and out untouched, and a counter that tells how often a view really ran"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from rest_framework.exceptions import ValidationError

from django_idempotency.decorators import idempotent
from testproject.payments.authentication import authenticated, by_token
from testproject.payments.errors import answering_refusals
from testproject.payments.simulate import EMPTY_STATUSES

# Without a token any valid key is allowed here; nobody's money is at stake.
protected = idempotent(share_anonymous=True, guessable_anonymous=True, mode="leased", transaction="late")

LONGEST_SLEEP_MS = 600_000
MOST_BYTES = 100_000_000


@csrf_exempt
@require_POST
@authenticated(by_token, optional=True)
@protected
@answering_refusals()
def echo(request: HttpRequest) -> HttpResponse:
    add_to_counter(settings.CONFORMANCE_COUNTER, 1)
    response = HttpResponse(request.body, status=201, content_type=request.headers.get("Content-Type"))
    if "Content-Type" not in request.headers:
        del response["Content-Type"]
    return response


@csrf_exempt
@require_POST
@authenticated(by_token, optional=True)
@protected
@answering_refusals()
def status(request: HttpRequest, code: int) -> HttpResponse:
    if not 200 <= code <= 599:
        raise ValidationError({"code": "A final status is 200 to 599."})
    add_to_counter(settings.CONFORMANCE_COUNTER, 1)
    body = "" if code in EMPTY_STATUSES else f"status:{code}"
    return HttpResponse(body, status=code, content_type="text/plain")


@csrf_exempt
@require_POST
@authenticated(by_token, optional=True)
@protected
@answering_refusals()
def slow(request: HttpRequest) -> HttpResponse:
    milliseconds = number(request, "ms", most=LONGEST_SLEEP_MS)
    add_to_counter(settings.CONFORMANCE_COUNTER, 1)
    time.sleep(milliseconds / 1000)
    return HttpResponse(f"slept:{milliseconds}", content_type="text/plain")


@csrf_exempt
@require_POST
@authenticated(by_token, optional=True)
@protected
@answering_refusals()
def large(request: HttpRequest) -> HttpResponse:
    size = number(request, "bytes", most=MOST_BYTES)
    add_to_counter(settings.CONFORMANCE_COUNTER, 1)
    return HttpResponse(b"x" * size, content_type="application/octet-stream")


@require_GET
def counter(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"count": add_to_counter(settings.CONFORMANCE_COUNTER, 0)})


@csrf_exempt
@require_POST
def reset(request: HttpRequest) -> HttpResponse:
    count = add_to_counter(settings.CONFORMANCE_COUNTER, 0)
    add_to_counter(settings.CONFORMANCE_COUNTER, -count)
    return HttpResponse(status=204)


def number(request: HttpRequest, name: str, *, most: int) -> int:
    text = request.GET.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most):
        raise ValidationError({name: f"A whole number from 0 to {most} is needed."})
    return int(text)


def add_to_counter(path: Path, amount: int) -> int:
    """A locked file: every worker process shares it, and no transaction takes it back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0) + amount
        file.truncate(0)
        file.write(str(count))
    return count
