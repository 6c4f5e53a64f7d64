"""A request under a lease: enter, run, settle. The sync and the async view share every step."""

from asyncio import CancelledError
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from asgiref.sync import sync_to_async
from django.db import Error
from django.http.response import HttpResponseBase

from django_idempotency.claiming import begin, peek
from django_idempotency.core.decisions import Call, InFlight
from django_idempotency.core.policy import OnError
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import LostFence, NotExecuted, OutcomeUnknown, StoreUnavailable
from django_idempotency.finishing import Attempt, doubt, fail, finish, release
from django_idempotency.heartbeat import beating
from django_idempotency.http.context import Idempotency, attach
from django_idempotency.http.exchange import Exchange, NotKept
from django_idempotency.http.transactions import GivenUp
from django_idempotency.http.waiting import undisturbed, wait_for_answer
from django_idempotency.signals import logger


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
