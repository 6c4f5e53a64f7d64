"""The life of one protected request: leased or atomic, sync or async."""

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from itertools import count
from threading import BoundedSemaphore
from time import monotonic, sleep
from typing import Final

from asgiref.sync import sync_to_async
from django.db import Error
from django.http.response import HttpResponseBase

from django_idempotency.core.decisions import Answer, Call, InDoubt, InFlight
from django_idempotency.core.policy import Mode, OnError, Transaction
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import LostFence, NotExecuted, OutcomeUnknown, StoreUnavailable
from django_idempotency.flow import atomic
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin, peek
from django_idempotency.flow.finish import doubt, fail, finish, release
from django_idempotency.flow.heartbeat import beating
from django_idempotency.http.atomic_requests import GivenUp
from django_idempotency.http.context import Idempotency, attach, inside, undisturbed
from django_idempotency.http.exchange import Exchange, NotKept
from django_idempotency.signals import logger


def run(exchange: Exchange) -> HttpResponseBase:
    """A sync view, from its key to its answer."""
    call = exchange.call()
    if not isinstance(call, Call):
        return call
    with inside(exchange.request):
        if exchange.policy.mode is Mode.ATOMIC:
            return run_atomic(exchange, call)
        return Leased(exchange, call, late=exchange.policy.transaction is Transaction.LATE).run()


async def arun(exchange: Exchange) -> HttpResponseBase:
    """An async view, which is always late: Django's transactions are synchronous."""
    call = await sync_to_async(exchange.call)()
    if not isinstance(call, Call):
        return call
    with inside(exchange.request):
        return await Leased(exchange, call, late=True).arun()


class Leased:
    """One attempt at a call, from its claim to its answer."""

    def __init__(self, exchange: Exchange, call: Call, *, late: bool) -> None:
        self.exchange = exchange
        self.call = call
        self.late = late
        self.attempt: Attempt | None = None
        self.context: Idempotency | None = None

    def run(self) -> HttpResponseBase:
        """A sync view."""
        early = self.enter()
        if early is not None:
            return early
        try:
            if not self.late:
                return self.settle(self.exchange.handler, ran=False)
            with beating(self.entered):
                response = self.exchange.handler()
            return self.ended(response)
        except BaseException as error:  # noqa: BLE001 - each is sorted, and what is not an answer goes on
            return self.broke(error)

    async def arun(self) -> HttpResponseBase:
        """An async view: its foreign calls have no transaction, its completion is one call in one thread."""
        try:
            early = await undisturbed(sync_to_async(self.enter)())
        except CancelledError:
            if self.attempt is not None:  # the view never began
                await undisturbed(sync_to_async(release)(self.attempt, "cancelled"))
            raise
        if early is not None:
            return early
        try:
            with beating(self.entered):
                response = await self.exchange.handler()
            return await undisturbed(sync_to_async(self.ended)(response))
        except Exception as error:  # noqa: BLE001 - each is sorted, and what is not an answer goes on
            return await undisturbed(sync_to_async(self.broke)(error))
        except BaseException as error:
            if self.attempt is not None:
                await undisturbed(sync_to_async(fail)(self.attempt, error))
            raise

    def enter(self) -> HttpResponseBase | None:
        """Claim the key; a response when there is something to answer instead of running."""
        using = self.exchange.using
        try:
            begun = begin(self.call, using)
            if isinstance(begun, InFlight):
                answer = wait_for_answer(begun, self.call.policy.wait, partial(peek, self.call, using))
                begun = answer or begin(self.call, using)
        except StoreUnavailable:
            return self.exchange.unavailable()
        if not isinstance(begun, Attempt):
            return self.exchange.answer(begun, self.call)
        self.attempt = begun
        self.context = Idempotency(begun, self.exchange.capture, late=self.late)
        attach(self.exchange.request, self.context)
        return None

    @property
    def entered(self) -> Attempt:
        """The attempt that `enter` began."""
        assert self.attempt is not None  # noqa: S101 - asked for after entering only
        return self.attempt

    def settle(self, make: Callable[[], HttpResponseBase], *, ran: bool = True) -> HttpResponseBase:
        """Make the response and store it, in one transaction. `ran` says that the view has begun before that."""
        opened = False

        def work() -> tuple[HttpResponseBase, Reply]:
            nonlocal opened
            with nullcontext() if ran else self.exchange.transactions():
                opened = True
                response = make()
                return self.exchange.kept(response, reached_out=self.entered.reached_out)

        try:
            return finish(self.entered, work, rerun=ran)
        except NotKept as unkept:
            return self.let_go(unkept.response)
        except GivenUp as refused:
            refusal = refused.response
            return self.settle(lambda: refusal)
        except OutcomeUnknown:
            return self.exchange.in_doubt(self.call)
        except LostFence:
            return self.exchange.overtaken(self.call)
        except (Error, StoreUnavailable) as error:
            if opened:
                raise
            return self.not_opened(error, ran=ran)

    def not_opened(self, error: Exception, *, ran: bool) -> HttpResponseBase:
        """There was not even a transaction: doubt after the view, and nothing happened before it."""
        logger.exception("The transaction of idempotency record %s did not begin.", self.call.id, exc_info=error)
        code = type(error).__name__
        if ran:
            doubt(self.entered, code)
            return self.exchange.in_doubt(self.call)
        release(self.entered, code)
        return self.exchange.unavailable()

    def let_go(self, response: HttpResponseBase) -> HttpResponseBase:
        """An answer that is not kept frees the key, but not after a call, nor while an earlier attempt is in doubt."""
        code = f"status_{response.status_code}"
        if not self.entered.reached_out and release(self.entered, code, give_back=self.exchange.gives_back(response)):
            return response
        doubt(self.entered, code)
        return self.exchange.overtaken(self.call)

    def ended(self, response: HttpResponseBase) -> HttpResponseBase:
        """The view returned. What `finish` stored is the answer, whatever the view made of it."""
        stored = self.context.response if self.context is not None else None
        if stored is None:
            return self.settle(lambda: response)
        if stored is not response:
            logger.error("A view returned another response than the one it finished with; the stored one is sent.")
        return stored

    def broke(self, error: BaseException) -> HttpResponseBase:
        """The view raised: an answer of its own, proof that nothing happened, or doubt."""
        if self.context is not None and self.context.response is not None and isinstance(error, Exception):
            logger.exception("A view failed after its answer was stored; the stored answer is sent.", exc_info=error)
            return self.context.response
        if isinstance(error, OutcomeUnknown | LostFence):
            doubt(self.entered, type(error).__name__)  # of another key, perhaps: this one's view failed all the same
            return self.exchange.overtaken(self.call)
        if isinstance(error, Exception) and self.answers_to(error):
            return self.explained(error)
        released = fail(self.entered, error)
        if isinstance(error, NotExecuted):
            return self.exchange.not_executed(error) if released else self.exchange.overtaken(self.call)
        raise error

    def answers_to(self, error: Exception) -> bool:
        """Whether what an exception says to the client is stored as the answer."""
        return self.exchange.is_refusal(error) or self.exchange.policy.on_error is OnError.STORE

    def explained(self, error: Exception) -> HttpResponseBase:
        """The project's own answer to an exception, stored."""
        try:
            return self.settle(lambda: self.exchange.explain(error))
        except Exception as unexplained:
            fail(self.entered, unexplained)
            raise


def run_atomic(exchange: Exchange, call: Call) -> HttpResponseBase:
    """What is not kept was rolled back with the claim, so there is no key to free."""
    runs = count()
    try:
        outcome = _all_in_one(exchange, call, runs)
        if isinstance(outcome, InFlight):
            answer = wait_for_answer(outcome, call.policy.wait, partial(atomic.peek, call, exchange.using))
            outcome = answer or _all_in_one(exchange, call, runs)
    except NotKept as unkept:
        return _unless_in_doubt(exchange, call, unkept.response)
    except StoreUnavailable:
        return exchange.unavailable()
    except OutcomeUnknown:  # a COMMIT that may still be on its way, or another key's that the view asked for
        return exchange.in_doubt(call)
    except NotExecuted as error:
        return _unless_in_doubt(exchange, call, exchange.not_executed(error))
    return outcome if isinstance(outcome, HttpResponseBase) else exchange.answer(outcome, call)


def _unless_in_doubt(exchange: Exchange, call: Call, response: HttpResponseBase) -> HttpResponseBase:
    """That this attempt came to nothing says nothing about one before it, whose record stands as it was."""
    try:
        found = atomic.peek(call, exchange.using)
    except StoreUnavailable:
        return exchange.unavailable()
    return exchange.answer(found, call) if isinstance(found, InDoubt) else response


def _all_in_one(exchange: Exchange, call: Call, runs: Iterator[int]) -> HttpResponseBase | Answer:
    """What the view refuses by raising is stored on its own, after its writes were rolled back."""

    def work(attempt: Attempt) -> tuple[HttpResponseBase, Reply]:
        if next(runs):  # an earlier one was rolled back
            exchange.rewind()
        attach(exchange.request, Idempotency(attempt, exchange.capture, late=False))
        with exchange.transactions():
            return exchange.kept(exchange.handler())

    try:
        return atomic.run_atomic(call, work, exchange.using)
    except GivenUp as refused:
        response = refused.response
    except Exception as error:
        if not exchange.is_refusal(error):
            raise
        response = exchange.explain(error)
    return atomic.run_atomic(call, lambda attempt: exchange.kept(response), exchange.using)


WAITERS: Final = BoundedSemaphore(4)  # per process: duplicates must not take every worker
PAUSE_SECONDS: Final = 0.05


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
