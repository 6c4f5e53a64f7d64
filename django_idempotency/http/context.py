"""What a view finds at `request.idempotency`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import Misplaced
from django_idempotency.flow.attempt import Attempt, KeyHandle
from django_idempotency.flow.deferred import Write, defer
from django_idempotency.flow.finish import finish
from django_idempotency.flow.steps import run_operation
from django_idempotency.http.atomic_requests import GivenUp, check_given_up
from django_idempotency.http.responses import accepted, plain
from django_idempotency.store.database import alias

T = TypeVar("T")


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


R = TypeVar("R", bound=HttpResponseBase)
_INSIDE: Final = "_idempotency_inside"  # on a request, while its protected view runs
Capture: TypeAlias = Callable[[HttpResponseBase], tuple[Any, Reply]]


class Idempotency(KeyHandle):
    """The key of this request and what its view may do with it."""

    active = True

    def __init__(self, attempt: Attempt, capture: Capture, *, late: bool) -> None:
        super().__init__(attempt, late=late)
        self._capture = capture
        self.response: HttpResponseBase | None = None

    async def aextend(self, lease: timedelta | None = None) -> None:
        await sync_to_async(self.extend)(lease)

    def finish(self, write: Callable[[], R]) -> R:
        """Run `write`, which makes the domain writes and returns the response, and complete the key with them.

        `write` may run a second time after a deadlock, so it does nothing outside the database.
        """
        self._require_late("finish")

        def work() -> tuple[R, Reply]:
            response = write()
            check_given_up(response)
            return self._capture(response)

        try:
            response = finish(self._attempt, work, rerun=True)
        except GivenUp as refused:
            refusal = refused.response
            response = finish(self._attempt, lambda: self._capture(refusal), rerun=True)
        self.response = response
        return response

    def run(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """Run an operation from where this key's record stands; its reply is the answer."""
        self._require_late("run")
        reply = run_operation(self._attempt, function, arguments)
        response = plain(reply)
        self.response = finish(self._attempt, lambda: (response, reply))
        return response

    async def arun(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """The same for async views: the whole operation in one thread."""
        return await undisturbed(sync_to_async(self.run)(function, **arguments))

    def defer(self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any) -> HttpResponse:
        """Hand an operation to a worker: 202, and the address that tells how far it is.

        `write` makes domain writes in the same transaction; a mapping that it returns is added to the arguments.
        """
        self._require_late("defer")
        defer(self._attempt, function, arguments, write)
        self.response = response = accepted(self._attempt.call)
        return response

    async def adefer(
        self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any
    ) -> HttpResponse:
        """The same for async views."""
        return await undisturbed(sync_to_async(self.defer)(function, write, **arguments))

    async def afinish(self, write: Callable[[], R]) -> R:
        """The same for async views: one call, in one thread, finished even when the client goes away."""
        return await undisturbed(sync_to_async(self.finish)(write))


class NoIdempotency:
    """The same on a request without a key: nothing is protected, and the view need not ask."""

    active = False
    key = ""
    scope = ""
    reference = ""
    is_repeat = False
    response: HttpResponseBase | None = None

    def derive(self, step: str) -> str | None:
        """No key to derive from: the downstream call goes without one."""
        return None

    def extend(self, lease: timedelta | None = None) -> None:
        """No lease to extend."""

    async def aextend(self, lease: timedelta | None = None) -> None:
        """No lease to extend."""

    def finish(self, write: Callable[[], R]) -> R:
        """Only the transaction."""
        with transaction.atomic(using=alias()):
            return write()

    async def afinish(self, write: Callable[[], R]) -> R:
        return await sync_to_async(self.finish)(write)

    def run(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        """An operation's steps stand in a record, and without a key there is none."""
        raise Misplaced("run() needs a key, because the steps are kept in its record: leave `required` on here.")

    async def arun(self, function: Callable[..., Reply], /, **arguments: Any) -> HttpResponse:
        return self.run(function)

    def defer(self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any) -> HttpResponse:
        """A worker reads its work in a record, and without a key there is none."""
        raise Misplaced("defer() needs a key, because its record is what the worker reads: leave `required` on here.")

    async def adefer(
        self, function: Callable[..., Reply], /, write: Write | None = None, **arguments: Any
    ) -> HttpResponse:
        return self.defer(function)


NONE: Final = NoIdempotency()


class IdempotentRequest(HttpRequest):
    """For annotations: a request as a protected view gets it."""

    idempotency: Idempotency | NoIdempotency


def attach(request: HttpRequest, context: Idempotency | NoIdempotency) -> None:
    """Every protected view finds one, whether the request carried a key or not."""
    request.idempotency = context  # type: ignore[attr-defined] # ours, as .user is Django's


def is_protected(request: HttpRequest) -> bool:
    """Inside another protected view: a second claim of the same key would find it taken."""
    return getattr(request, _INSIDE, False)


@contextmanager
def inside(request: HttpRequest) -> Iterator[None]:
    """While the protected view runs, and no longer: what is called after it has a claim of its own to make."""
    setattr(request, _INSIDE, True)
    try:
        yield
    finally:
        setattr(request, _INSIDE, False)
