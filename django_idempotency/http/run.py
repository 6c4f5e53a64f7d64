"""The life of a protected request, from its key to its response: `run` for sync views, `arun` for async ones.

In leased mode the key is claimed in a transaction of its own; `LeasedRequest` then turns whatever the view does into a
response. In atomic mode claim, view and stored response share one transaction; that is `atomic_run.AtomicRequest`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error
from django.http.response import HttpResponseBase

from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import InFlight
from django_idempotency.core.links import docs_url
from django_idempotency.core.policy import Mode, OnDisconnect, Transaction
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import LostFence, OutcomeUnknown, StoreUnavailable
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin, peek
from django_idempotency.flow.finish import doubt, fail, finish, proves_nothing_happened, release
from django_idempotency.flow.heartbeat import beating
from django_idempotency.http.atomic_requests import RollbackRequired
from django_idempotency.http.atomic_run import AtomicRequest
from django_idempotency.http.context import Idempotency, attach, protection, run_to_end
from django_idempotency.http.disconnects import finish_without_client
from django_idempotency.http.exchange import Exchange, NotKept
from django_idempotency.http.waiting import wait_for_answer
from django_idempotency.signals import logger


def run(exchange: Exchange, *_: Any, **__: Any) -> HttpResponseBase:
    """Run a sync view under its key. Further arguments are ignored: the exchange's handler has the view's arguments."""
    call = exchange.call()
    if not isinstance(call, Call):
        return call
    with protection(exchange.request, call):
        if exchange.policy.mode is Mode.ATOMIC:
            return AtomicRequest(exchange, call).run()
        attempt = claim(exchange, call)
        if not isinstance(attempt, Attempt):
            return attempt
        late = exchange.policy.transaction is Transaction.LATE
        leased = LeasedRequest(exchange, attempt, late=late)
        try:
            if late:
                with beating(attempt):
                    response = exchange.finalize(exchange.handler())
                return leased.on_return(response)
            try:
                return finish(attempt, leased.run_view)
            except Exception as error:  # noqa: BLE001 - raised again unless it is about storing the response
                return leased.on_unstored(error, after_view=False)
        except BaseException as error:  # noqa: BLE001 - raised again unless there is a response for it
            return leased.on_exception(error)


async def arun(exchange: Exchange) -> HttpResponseBase:
    """Run an async view under its key. It is always late, because Django's transactions are synchronous."""
    call = await sync_to_async(exchange.call)()
    if not isinstance(call, Call):
        return await call if asyncio.iscoroutine(call) else call
    with protection(exchange.request, call):
        attempt = await _aclaim(exchange, call)
        if not isinstance(attempt, Attempt):
            return attempt
        running = _arun_claimed(LeasedRequest(exchange, attempt, late=True))
        if exchange.policy.on_disconnect is OnDisconnect.CANCEL:
            return await running
        return await finish_without_client(running, attempt)


async def _arun_claimed(leased: "LeasedRequest") -> HttpResponseBase:
    exchange, attempt = leased.exchange, leased.attempt
    try:
        with beating(attempt):
            response = exchange.finalize(await exchange.handler())
        return await run_to_end(sync_to_async(leased.on_return)(response))
    except Exception as error:  # noqa: BLE001 - raised again unless there is a response for it
        return await run_to_end(sync_to_async(leased.on_exception)(error))
    except BaseException as error:
        await run_to_end(sync_to_async(fail)(attempt, error))
        raise


def claim(exchange: Exchange, call: Call) -> Attempt | HttpResponseBase:
    """Claim the key, or return the response to give instead of running the view."""
    using = exchange.using
    try:
        begun = begin(call, using)
        if isinstance(begun, InFlight):
            begun = wait_for_answer(begun, call, partial(peek, call, using), exchange.request) or begin(call, using)
    except StoreUnavailable as error:
        return exchange.unavailable_response(error)
    return begun if isinstance(begun, Attempt) else exchange.answer(begun, call)


async def _aclaim(exchange: Exchange, call: Call) -> Attempt | HttpResponseBase:
    claiming = asyncio.ensure_future(sync_to_async(claim)(exchange, call))
    try:
        return await run_to_end(claiming)
    except asyncio.CancelledError:
        claimed = claiming.result()
        if isinstance(claimed, Attempt):  # the view never began
            await run_to_end(sync_to_async(release)(claimed, "cancelled"))
        raise


class LeasedRequest:
    """One claimed request in leased mode: what becomes of its attempt, and the response that the client gets."""

    def __init__(self, exchange: Exchange, attempt: Attempt, *, late: bool) -> None:
        self.exchange = exchange
        self.attempt = attempt
        self.call = attempt.call
        self.context = Idempotency(attempt, exchange.capture, late=late)
        self.in_transaction = False  # the transaction that stores the response has begun
        self.explained = False  # the response was made of an exception that the policy lets be one
        self.about_another_key: Exception | None = None  # what the project's code raised about a key that it used
        attach(exchange.request, self.context)

    def run_view(self) -> tuple[HttpResponseBase, Reply]:
        """Run the view in the transaction that stores its response."""
        with self.exchange.transactions(), self.project_code():
            return self.keep(self.exchange.finalize(self.exchange.handler()))

    @contextmanager
    def project_code(self) -> Iterator[None]:
        """Run the project's code in the transaction that stores its response."""
        self.in_transaction = True
        try:
            yield
        except (OutcomeUnknown, LostFence) as error:
            self.about_another_key = error
            raise

    def explain(self, error: Exception) -> tuple[HttpResponseBase, Reply]:
        """Make the project's response to an exception in the transaction that stores it."""
        self.explained = True
        with self.project_code():
            return self.keep(self.exchange.explain(error))

    def keep(self, response: HttpResponseBase) -> tuple[HttpResponseBase, Reply]:
        """Return the response and the reply to store of it."""
        self.in_transaction = True
        return self.exchange.keep(response, reached_out=bool(self.attempt.derived), explained=self.explained)

    def store(self, work: Callable[[], tuple[HttpResponseBase, Reply]]) -> HttpResponseBase:
        """Store the response that `work` makes, after the view has run."""
        self.in_transaction = False
        try:
            return finish(self.attempt, work, rerun=True)
        except Exception as error:  # noqa: BLE001 - raised again unless it is about storing the response
            return self.on_unstored(error, after_view=True)

    def on_return(self, response: HttpResponseBase) -> HttpResponseBase:
        """Store the response of a late view, unless the view has stored one itself."""
        if self.context.response is None:
            return self.store(partial(self.keep, response))
        if self.context.response is not response:
            logger.error("A view returned another response than the one it stored. The stored response was sent.")
        return self.context.response

    def on_unstored(self, error: Exception, *, after_view: bool) -> HttpResponseBase:
        """Return the response to give when `finish` stored none; raise the error if the view, or its COMMIT, failed."""
        if error is self.about_another_key:
            return self.on_exception(error)
        match error:
            case NotKept():
                return self.release_or_doubt(error.response)
            case RollbackRequired():
                return self.store(partial(self.keep, error.response))
            case OutcomeUnknown() | LostFence():
                return self.exchange.settled_response(self.attempt)
            case Error() | StoreUnavailable() if not self.in_transaction:
                return self.on_no_transaction(error, after_view=after_view)
        raise error

    def on_no_transaction(self, error: Exception, *, after_view: bool) -> HttpResponseBase:
        """Return the response to give when no transaction could begin. Before the view nothing has happened."""
        if after_view:
            logger.error("The transaction of idempotency record %s did not begin.", self.call.id, exc_info=error)
            doubt(self.attempt, type(error).__name__, error)
            return self.exchange.unknown_outcome_response(self.call)
        release(self.attempt, type(error).__name__)
        return self.exchange.unavailable_response(error)

    def release_or_doubt(self, response: HttpResponseBase) -> HttpResponseBase:
        """Free the key for a response that is not stored, unless an external call or an earlier attempt is in doubt."""
        code, give_back = f"status_{response.status_code}", self.exchange.gives_back(response)
        counts = response.status_code >= 500
        if not self.attempt.derived and release(self.attempt, code, give_back=give_back, counts=counts):
            return response
        doubt(self.attempt, code)
        return self.exchange.settled_response(self.attempt)

    def on_exception(self, error: BaseException) -> HttpResponseBase:
        """Return the response to what the view raised, or record what it means for the key and raise it again."""
        if self.context.response is not None and isinstance(error, Exception):
            logger.error("A view failed after its response was stored. The stored response was sent.", exc_info=error)
            return self.context.response
        if isinstance(error, OutcomeUnknown | LostFence):  # perhaps about another key, which the view used
            doubt(self.attempt, type(error).__name__, error)
            return self.exchange.settled_response(self.attempt)
        if isinstance(error, Exception) and self.exchange.stores_response_to(error, self.attempt):
            try:
                return self.store(partial(self.explain, error))
            except Exception as unexplained:
                fail(self.attempt, unexplained)
                raise
        proven = proves_nothing_happened(error, self.attempt)
        released = fail(self.attempt, error, proven=proven)
        if released and proven and isinstance(error, Exception):
            return self.exchange.not_executed_response(error, self.attempt.number)
        if (
            not released
            and isinstance(error, Exception)
            and (self.is_of_a_repeat(error) or self.exchange.misleads(error))
        ):
            return self.exchange.settled_response(self.attempt)
        raise error

    def is_of_a_repeat(self, error: Exception) -> bool:
        """True if `write` raised this when it ran again: a 500 would call it a mistake of the request. It is logged."""
        if error is not self.attempt.failed_again:
            return False
        logger.error(
            "`write` of %s failed when it ran again after a deadlock or a lost connection. Make what it changes, a "
            "serializer for example, inside it. See %s",
            self.call.title,
            docs_url("how-to/external-calls", "rules-for-write"),
            exc_info=error,
        )
        return True
