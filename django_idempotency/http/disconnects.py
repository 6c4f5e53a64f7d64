"""Async views whose client disconnects: they finish within their lease, and a process bounds how many do."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from math import ceil
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from django_idempotency.conf import conf
from django_idempotency.flow.attempt import Attempt
from django_idempotency.signals import logger

T = TypeVar("T")
Caller: TypeAlias = tuple[str, str]  # tenant and principal

CALLERS: Final = 10  # who may hang up as often as they are allowed to, before another caller has no place


class Shares:
    """The places for views without their client in this process. No caller has more than a share of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: Counter[Caller] = Counter()

    def take(self, caller: Caller, most: int) -> bool:
        """Take a place; False if all of them, or all that one caller may have, are taken."""
        with self._lock:
            if self._taken.total() >= most or self._taken[caller] >= ceil(most / CALLERS):
                return False
            self._taken[caller] += 1
            return True

    def leave(self, caller: Caller) -> None:
        with self._lock:
            self._taken[caller] -= 1
            self._taken += Counter()  # keeps no caller that has none


DISCONNECTED: Final = Shares()


async def finish_without_client(work: Coroutine[Any, Any, T], attempt: Attempt) -> T:
    """Return the result of `work`, which continues when this task is cancelled for the first time.

    Django cancels the task of a request when its client disconnects. The task still waits for the work, because the
    request's thread, database connection and body end with it. A second cancellation comes from a server that stops,
    and cancels the work too. So does the end of the event loop, which cancels every task.
    """
    context = copy_context()
    task = asyncio.create_task(work, context=context)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        try:
            await _wait_for_lease(task, attempt)
        finally:
            await _cancel(task)
        if task.cancelled() or _returned_async_stream(task):
            raise
        _uncancel()
    _adopt(context)
    return task.result()


async def _wait_for_lease(task: asyncio.Task[Any], attempt: Attempt) -> None:
    """Wait until the task is done, its lease is over, or the server cancels again."""
    most = conf.MAX_DISCONNECTED
    reason = f"MAX_DISCONNECTED allows no more than {most} to finish, and {ceil(most / CALLERS)} of one caller"
    caller = attempt.call.tenant, attempt.call.principal
    if DISCONNECTED.take(caller, most):
        try:
            while not task.done() and attempt.lease_left > 0:
                await asyncio.wait([task], timeout=attempt.lease_left)
            reason = "its lease is over"
        except asyncio.CancelledError:
            reason = "the server has cancelled it again"
        finally:
            DISCONNECTED.leave(caller)
    if not task.done():
        operation = attempt.call.operation
        logger.warning("The view of %s is cancelled: its client has disconnected, and %s.", operation, reason)


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel the task unless it is done, and wait for its end: it records that the outcome is unknown."""
    while not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])


def _returned_async_stream(task: asyncio.Task[Any]) -> bool:
    """True if the response is an async stream: it may have no end, and no client reads it."""
    return task.exception() is None and getattr(task.result(), "is_async", False)


def _uncancel() -> None:
    """Continue as if this task had not been cancelled: the middleware around the view handles its response."""
    this = asyncio.current_task()
    if this is not None:
        this.uncancel()


def _adopt(context: Context) -> None:
    """Set the context variables of this task to those of the work, for the middleware around it."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)
