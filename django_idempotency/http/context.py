"""`request.idempotency`: what a view may do with its key."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from django_idempotency.core.calls import Call
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import Misplaced, NotAResponse
from django_idempotency.flow import tracing
from django_idempotency.flow.attempt import Attempt, KeyHandle
from django_idempotency.flow.deferred import Write, defer
from django_idempotency.flow.finish import finish
from django_idempotency.flow.steps import run_steps
from django_idempotency.http.atomic_requests import RollbackRequired, check_for_rollback
from django_idempotency.http.responses import accepted_response, plain_response
from django_idempotency.store.records import alias

T = TypeVar("T")


async def run_to_end(work: Awaitable[T]) -> T:
    """Wait until `work` has ended, even if this task is cancelled, and raise the CancelledError only then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001 - `task.result()` below raises it
            break
    if cancelled is not None and task.exception() is None:
        # Never raise a subclass: Python 3.12's task groups, and so Django 6.1, would treat it as a failure.
        raise cancelled
    return task.result()


R = TypeVar("R", bound=HttpResponseBase)
_PROTECTED: Final = "_idempotency_protected"  # set on a request while its protected view runs
Capture: TypeAlias = Callable[[HttpResponseBase], tuple[Any, Reply]]


class Idempotency(KeyHandle):
    """The key of this request, and what its view may do with it."""

    active = True

    def __init__(self, attempt: Attempt, capture: Capture, *, late: bool) -> None:
        super().__init__(attempt, late=late)
        self._capture = capture
        self.response: HttpResponseBase | None = None

    async def aextend(self, lease: timedelta | None = None) -> None:
        """Do what `extend` does, for async views."""
        await sync_to_async(self.extend)(lease)

    def finish(self, write: Callable[[], R]) -> R:
        """Run `write`, which makes the domain writes and returns the response, and store that response with them.

        `write` may run again after a deadlock or a lost connection, so it must do nothing outside the database.
        """
        self._require_late("finish")
        try:
            self.response = response = finish(self._attempt, partial(self._written, write), rerun=True)
        except RollbackRequired as error:
            self.response = response = finish(self._attempt, partial(self._capture, error.response), rerun=True)
        return response

    def _written(self, write: Callable[[], R]) -> tuple[R, Reply]:
        response = write()
        if not isinstance(response, HttpResponseBase):
            raise NotAResponse(response, self._attempt.call.operation)
        check_for_rollback(response)
        return self._capture(response)

    def run(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """Run an operation from the recovery point of this key's record; its reply is the response."""
        self._require_late("run")
        reply = run_steps(self._attempt, function, arguments)
        response = plain_response(reply)
        profile = self._attempt.call.policy.profile
        if profile.mark_first:
            response[profile.replayed_header] = "false"
        self.response = finish(self._attempt, lambda: (response, reply), rerun=True)
        return response

    async def arun(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """Do what `run` does, for async views: the whole operation runs in one thread."""
        return await run_to_end(sync_to_async(self.run)(function, **arguments))

    def defer(self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any) -> HttpResponse:
        """Hand an operation to a worker. Return a 202 with the address of its status.

        `write` makes domain writes in the same transaction. The mapping that it returns is added to the arguments.
        """
        self._require_late("defer")
        defer(self._attempt, function, arguments, write)
        self.response = response = accepted_response(self._attempt.call)
        return response

    async def adefer(
        self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any
    ) -> HttpResponse:
        """Do what `defer` does, for async views."""
        return await run_to_end(sync_to_async(self.defer)(function, write, **arguments))

    async def afinish(self, write: Callable[[], R]) -> R:
        """Do what `finish` does, for async views: in one thread, and to its end even if the client disconnects."""
        return await run_to_end(sync_to_async(self.finish)(write))


class NoIdempotency:
    """`request.idempotency` of an unprotected request: the same members, which do nothing.

    A view need not ask whether its request carries a key.
    """

    active = False
    key = ""
    scope = ""
    reference = ""
    is_repeat = False
    response: HttpResponseBase | None = None

    def derive(self, step: str) -> str | None:
        """Return None: the downstream call is made without a key."""
        return None

    def extend(self, lease: timedelta | None = None) -> None:
        """Do nothing: there is no lease."""

    async def aextend(self, lease: timedelta | None = None) -> None:
        """Do nothing: there is no lease."""

    def finish(self, write: Callable[[], R]) -> R:
        """Run `write` in a transaction. Nothing is stored."""
        with transaction.atomic(using=alias()):
            return write()

    async def afinish(self, write: Callable[[], R]) -> R:
        """Do what `finish` does, for async views."""
        return await sync_to_async(self.finish)(write)

    def run(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """Raise Misplaced: without a key there is no record to keep the steps in."""
        raise Misplaced("run() needs a key, because its record keeps the operation's steps: use required=True here.")

    async def arun(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """Raise Misplaced, as `run` does."""
        return self.run(function)

    def defer(self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any) -> HttpResponse:
        """Raise Misplaced: without a key there is no record for a worker to read."""
        raise Misplaced("defer() needs a key, because a worker reads the work in its record: use required=True here.")

    async def adefer(
        self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any
    ) -> HttpResponse:
        """Raise Misplaced, as `defer` does."""
        return self.defer(function)


NONE: Final = NoIdempotency()


class IdempotentRequest(HttpRequest):
    """The request of a protected view, for annotations."""

    idempotency: Idempotency | NoIdempotency


def attach(request: HttpRequest, context: Idempotency | NoIdempotency) -> None:
    """Set `request.idempotency`."""
    request.idempotency = context  # type: ignore[attr-defined] # ours, as .user is Django's


def is_protected(request: HttpRequest) -> bool:
    """True while a protected view of this request runs. A second claim of its key would find the key taken."""
    return getattr(request, _PROTECTED, False)


class protection:
    """Mark this request as protected inside the block, and trace it if a tracer is installed.

    A view that is called after the block may claim the key itself.
    """

    __slots__ = ("_request", "_span")

    def __init__(self, request: HttpRequest, call: Call) -> None:
        self._request = request
        self._span = None if tracing.open_span is None else tracing.trace_request(call)

    def __enter__(self) -> None:
        setattr(self._request, _PROTECTED, True)
        if self._span is not None:
            self._span.__enter__()

    def __exit__(self, *raised: Any) -> None:
        setattr(self._request, _PROTECTED, False)
        if self._span is not None:
            self._span.__exit__(*raised)
