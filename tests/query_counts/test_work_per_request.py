"""How much the layer itself does for one request: calls of its functions, and memory that it holds at its peak.

Both are counted, because a count is the same on every machine. Before raising a ceiling, look at what was added.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_idempotency.decorators import idempotent

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
