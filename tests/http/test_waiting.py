"""Duplicates that wait leave threads of their process for other requests."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.http.waiting import count_places
from tests.kit.http import Person, Ran
from tests.kit.threads import wait_until

pytestmark = pytest.mark.vendor

Ask = Callable[[str], "Future[int]"]


class Slow:
    """A view whose first run waits until it is let go."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        Ran.again()
        self.began.set()
        assert self.go_on.wait(10)
        return HttpResponse(status=201)


@pytest.fixture
def slow(settings: Any) -> Iterator[Slow]:
    view = Slow()
    patterns = [
        path("slow", idempotent(wait=timedelta(seconds=30))(view), name="slow"),
        path("other", lambda request: HttpResponse(status=204)),
    ]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": patterns})
    yield view
    view.go_on.set()


@pytest.fixture
def ask(alice: Person, slow: Slow) -> Iterator[Ask]:
    """Ask a server that has four threads."""

    def serve(address: str) -> int:
        try:
            several: dict[str, Any] = {"wsgi.multithread": True}
            status: int = alice.post(address, **several).status_code
            return status
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        yield lambda address: threads.submit(serve, address)
        slow.go_on.set()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("given", [{}, {"SERVER_THREADS": 4}])
def test_waiting_duplicates_leave_threads_for_other_requests(
    ask: Ask, slow: Slow, given: dict[str, int], settings: Any
) -> None:
    settings.IDEMPOTENCY = given
    first = ask("/slow")
    assert slow.began.wait(10)
    duplicates = [ask("/slow") for _ in range(6)]
    assert ask("/other").result(15) == 204
    wait_until(lambda: sum(each.done() for each in duplicates) == 5)
    assert not first.done()
    slow.go_on.set()
    assert sorted(each.result(60) for each in (first, *duplicates)) == [201, 201, 409, 409, 409, 409, 409]
    assert Ran.count == 1


def wsgi(threads: bool) -> HttpRequest:
    return RequestFactory().post("/", **{"wsgi.multithread": threads})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "request_", "places"),
    [
        (None, wsgi(False), 0),
        (None, wsgi(True), 1),
        (None, AsyncRequestFactory().post("/"), 4),
        (1, wsgi(True), 0),
        (2, wsgi(True), 0),
        (3, wsgi(False), 1),
        (4, wsgi(True), 1),
        (16, wsgi(True), 7),
        (16, AsyncRequestFactory().post("/"), 7),
    ],
)
def test_how_many_may_wait(given: int | None, request_: Any, places: int, settings: Any) -> None:
    settings.IDEMPOTENCY = {} if given is None else {"SERVER_THREADS": given}
    assert count_places(request_) == places


@pytest.mark.django_db(transaction=True)
def test_a_server_with_one_thread_lets_nobody_wait(alice: Person, slow: Slow) -> None:
    def send() -> None:
        alice.post("/slow")
        connections.close_all()

    first = threading.Thread(target=send)
    first.start()
    try:
        assert slow.began.wait(10)
        assert alice.post("/slow").status_code == 409
    finally:
        slow.go_on.set()
        first.join()
