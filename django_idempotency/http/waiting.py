"""Duplicates that wait for the answer to the request that is running."""

from collections.abc import Callable
from datetime import timedelta
from threading import BoundedSemaphore
from time import monotonic, sleep
from typing import Final

from django_idempotency.core.decisions import Answer, InFlight

WAITERS: Final = BoundedSemaphore(4)  # per process, so that waiting duplicates leave workers for other requests
PAUSE_SECONDS: Final = 0.05


def wait_for_answer(first: InFlight, wait: timedelta, look: Callable[[], Answer | None]) -> Answer | None:
    """Wait for the answer to the request that is running. None if the key became free."""
    if not wait or not WAITERS.acquire(blocking=False):
        return first
    try:
        answer: Answer | None = first
        deadline = monotonic() + wait.total_seconds()
        while isinstance(answer, InFlight) and monotonic() < deadline:
            sleep(PAUSE_SECONDS)
            answer = look()
        return answer
    finally:
        WAITERS.release()
