"""Waiting: for work that must end although the client went away, and for the first request's answer."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from threading import BoundedSemaphore
from time import monotonic, sleep
from typing import Final, TypeVar

from django_idempotency.core.decisions import Answer, InFlight

T = TypeVar("T")

WAITERS: Final = BoundedSemaphore(4)  # per process: duplicates must not take every worker
PAUSE_SECONDS: Final = 0.05


async def undisturbed(work: Awaitable[T]) -> T:
    """Wait until `work` has ended, whatever happens to the request, and only then pass a cancellation on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001 - taken out of the task below
            break
    if cancelled is not None and task.exception() is None:
        raise cancelled  # never a subclass: Python 3.12's task groups, and so Django 6.1, take one for an error
    return task.result()


def wait_for_answer(first: InFlight, wait: timedelta, look: Callable[[], Answer | None]) -> Answer | None:
    """The answer that the first request gets while this one waits; None when the key became free."""
    if not wait or not WAITERS.acquire(blocking=False):
        return first
    try:
        return _poll(look, first, monotonic() + wait.total_seconds())
    finally:
        WAITERS.release()


def _poll(look: Callable[[], Answer | None], first: Answer, deadline: float) -> Answer | None:
    answer: Answer | None = first
    while isinstance(answer, InFlight) and monotonic() < deadline:
        sleep(PAUSE_SECONDS)
        answer = look()
    return answer
