"""How much the layer itself does for one request: calls of its functions, and memory that it holds at its peak.

Both are counted, because a count is the same on every machine. Before raising a ceiling, look at what was added.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import include, path, resolve

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

PACKAGE = "django_idempotency"
REQUESTS = 20  # for each count; the first ones warm up
BODY = b'{"amount": 500}'


def create(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b'{"id": 17}', status=201, content_type="application/json")


VIEWS: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    mode: idempotent(operation=f"work.{mode}", mode=mode, share_anonymous=True)(create) for mode in ("leased", "atomic")
}

# calls of the package's functions, and kilobytes at the peak
MOST = {
    ("leased", "new key"): (235, 20),
    ("leased", "replay"): (165, 20),
    ("atomic", "new key"): (215, 20),
    ("atomic", "replay"): (175, 20),
}

# A savepoint that proves the transaction, and a driver that is written in Python.
MORE = {"mysql": (20, 20)}


def requests_of(kind: str, count: int) -> list[HttpRequest]:
    """Requests with a new key each, or all with one key."""
    known = str(uuid4())
    keys = [known if kind == "replay" else str(uuid4()) for _ in range(count)]
    return [
        RequestFactory().post("/work", BODY, content_type="application/json", headers={"Idempotency-Key": key})
        for key in keys
    ]


def count_calls(view: Callable[[HttpRequest], HttpResponse], request: HttpRequest) -> int:
    calls = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and str(frame.f_globals.get("__name__", "")).startswith(PACKAGE)

    sys.setprofile(on_event)
    try:
        view(request)
    finally:
        sys.setprofile(None)
    return calls


def measure_peak(view: Callable[[HttpRequest], HttpResponse], request: HttpRequest) -> float:
    """Kilobytes that the request held at its peak."""
    tracemalloc.start()
    try:
        view(request)
        return tracemalloc.get_traced_memory()[1] / 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("mode", "kind"), MOST)
def test_a_request_calls_few_functions(mode: str, kind: str, vendor: str) -> None:
    counts = [count_calls(VIEWS[mode], request) for request in requests_of(kind, REQUESTS)]
    assert min(counts[5:]) <= MOST[mode, kind][0] + MORE.get(vendor, (0, 0))[0]
    assert max(counts[5:]) == min(counts[5:]), "every request does the same"


@pytest.mark.parametrize(("mode", "kind"), MOST)
def test_a_request_holds_little_memory(mode: str, kind: str, vendor: str) -> None:
    peaks = [measure_peak(VIEWS[mode], request) for request in requests_of(kind, REQUESTS)]
    assert min(peaks[5:]) <= MOST[mode, kind][1] + MORE.get(vendor, (0, 0))[1]


@pytest.mark.parametrize("mode", VIEWS)
def test_a_body_is_not_copied_for_its_fingerprint(mode: str) -> None:
    """The response of the view is small, so what grows with the request is the layer's."""

    def peak(size: int) -> float:
        request = requests_of("new key", 1)[0]
        request._body, request.META["CONTENT_LENGTH"] = b"x" * size, str(size)  # as Django keeps what it has read
        return measure_peak(VIEWS[mode], request)

    peak(10)
    assert peak(1024 * 1024) - peak(10) < 64


# Receipts and polls

opened = idempotent(operation="work.opened", mode="leased", share_anonymous=True, receipts=True)
OPENED = opened(create)
MANY = [path(f"extra/{number}", opened(create), name=f"extra-{number}") for number in range(300)]
LAST = [path("work", OPENED), path("idempotency/", include("django_idempotency.urls"))]
FEW_ROUTES: Any = type("Few", (), {"urlpatterns": LAST})
MANY_ROUTES: Any = type("Many", (), {"urlpatterns": [*MANY, *LAST]})


def ask_for(what: str, record: IdempotencyKey) -> HttpRequest:
    """A receipt of this record, a poll of it, or somebody else's receipt that finds nothing."""
    if what == "poll":
        return RequestFactory().get(f"/idempotency/operations/{record.pk}/")
    key = record.key if what == "receipt" else str(uuid4())
    return RequestFactory().get("/idempotency/keys/", {"path": "/work"}, headers={"Idempotency-Key": key})


@pytest.mark.parametrize(("what", "most"), [("receipt", 135), ("poll", 135), ("nothing", 95)])
def test_a_poll_costs_no_more_than_a_replay_however_many_routes_there_are(
    what: str, most: int, settings: Any, vendor: str
) -> None:
    (first,) = requests_of("new key", 1)
    first.resolver_match = resolve("/work", FEW_ROUTES)
    OPENED(first)
    request = ask_for(what, IdempotencyKey.objects.get())

    def count(routes: type) -> int:
        settings.ROOT_URLCONF = routes
        found = resolve(request.path)
        view = partial(found.func, **found.kwargs)
        return min(count_calls(view, request) for _ in range(3))

    few, many = count(FEW_ROUTES), count(MANY_ROUTES)
    assert few == many
    assert many <= most + MORE.get(vendor, (0, 0))[0]
