"""Duplicates that wait for the answer to the request that is running, and how many may."""

from collections.abc import Callable
from threading import Lock
from time import monotonic, sleep
from typing import Final

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from django_idempotency.conf import conf
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer, InFlight

PAUSE_SECONDS: Final = 0.05
WITH_A_THREAD_EACH: Final = 4  # under ASGI a waiting request has a thread of its own


def count_places(request: HttpRequest) -> int:
    """Return how many requests of this process may wait at the same time.

    For each there may be a first request that is running, and one thread has to be left for all others. The setting
    says how many threads there are. Without it only the server's word is known, `wsgi.multithread`: false means one
    thread, and of several one may wait.
    """
    threads = conf.SERVER_THREADS
    if threads is not None:
        return (threads - 1) // 2
    if isinstance(request, ASGIRequest):
        return WITH_A_THREAD_EACH
    return int(bool(request.META.get("wsgi.multithread")))


class Places:
    """The places for requests that wait in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken = 0

    def take(self, most: int) -> bool:
        """Take a place; False if this many are taken."""
        with self._lock:
            if self._taken >= most:
                return False
            self._taken += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._taken -= 1


PLACES: Final = Places()


def wait_for_answer(
    first: InFlight, call: Call, look: Callable[[], Answer | None], request: HttpRequest
) -> Answer | None:
    """Wait for the answer to the request that is running. None if the key became free."""
    wait = call.policy.wait
    if not wait or not PLACES.take(count_places(request)):
        return first
    try:
        answer: Answer | None = first
        deadline = monotonic() + wait.total_seconds()
        while isinstance(answer, InFlight) and monotonic() < deadline:
            sleep(PAUSE_SECONDS)
            answer = look()
        return answer
    finally:
        PLACES.leave()
