"""The life of a protected request in atomic mode, where claim, view and stored response share one transaction."""

from functools import partial

from django.http.response import HttpResponseBase

from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer, InDoubt, InFlight, Replay
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import OutcomeUnknown, StoreUnavailable
from django_idempotency.flow import atomic
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import proves_nothing_happened
from django_idempotency.http.atomic_requests import RollbackRequired
from django_idempotency.http.context import Idempotency, attach
from django_idempotency.http.exchange import Exchange, NotKept
from django_idempotency.http.waiting import wait_for_answer
from django_idempotency.signals import logger


class AtomicRequest:
    """One request in atomic mode. A response that is not stored is rolled back with the claim, which frees the key."""

    def __init__(self, exchange: Exchange, call: Call) -> None:
        self.exchange = exchange
        self.call = call
        self.attempt: Attempt | None = None  # the one in which the view ran
        self.raised_by_view: StoreUnavailable | None = None  # about another store, or another key

    def run(self) -> HttpResponseBase:
        """Run the view under its key."""
        exchange, call = self.exchange, self.call
        try:
            outcome = self.run_once()
            if isinstance(outcome, InFlight):
                look = partial(atomic.peek_alone, call, exchange.using)
                outcome = wait_for_answer(outcome, call, look, exchange.request) or self.run_once()
        except NotKept as error:
            if self.reached_out:
                return self.unknown_outcome()
            return self.unless_answered(error.response)
        except StoreUnavailable as error:
            if error is self.raised_by_view:
                raise
            return exchange.unavailable_response(error)
        except OutcomeUnknown as error:  # of this COMMIT, or of another key that the view used
            logger.error("The outcome of %s is unknown.", call.title, exc_info=error)
            return self.unknown_outcome()
        except Exception as error:
            if self.attempt is None or not proves_nothing_happened(error, self.attempt):
                if exchange.misleads(error):
                    return self.unknown_outcome()
                raise
            return self.unless_answered(exchange.not_executed_response(error))
        return outcome if isinstance(outcome, HttpResponseBase) else exchange.answer(outcome, call)

    def run_once(self) -> HttpResponseBase | Answer:
        """Claim the key and run the view. An error response is stored after the view's writes were rolled back."""
        try:
            return atomic.run_atomic(self.call, self.run_view, self.exchange.using)
        except RollbackRequired as error:
            response, explained = error.response, False
        except Exception as error:
            if self.attempt is None or not self.exchange.stores_response_to(error, self.attempt):
                raise
            response, explained = self.exchange.explain(error), True
        keep = partial(self.exchange.keep, response, reached_out=self.reached_out, explained=explained)
        return atomic.run_atomic(self.call, lambda attempt: keep(), self.exchange.using)

    def run_view(self, attempt: Attempt) -> tuple[HttpResponseBase, Reply]:
        """Run the view in the transaction of its claim. It runs again after a deadlock."""
        if self.attempt is not None:
            self.exchange.rewind()
        self.attempt = attempt
        attach(self.exchange.request, Idempotency(attempt, self.exchange.capture, late=False))
        with self.exchange.transactions():
            try:
                response = self.exchange.finalize(self.exchange.handler())
            except StoreUnavailable as error:
                self.raised_by_view = error
                raise
            return self.exchange.keep(response, reached_out=bool(attempt.derived))

    @property
    def reached_out(self) -> bool:
        """True if the view derived a downstream key: an external service may have been called."""
        return self.attempt is not None and bool(self.attempt.derived)

    def unless_answered(self, response: HttpResponseBase) -> HttpResponseBase:
        """Return this response of a view that was rolled back, unless the record has another one.

        A request beside this one may have stored its response, or the outcome of an earlier attempt is unknown.
        """
        try:
            found = self.stored_outcome()
        except StoreUnavailable as error:
            return self.exchange.unavailable_response(error)
        return response if found is None else self.exchange.answer(found, self.call)

    def unknown_outcome(self) -> HttpResponseBase:
        """Return the stored response if there is one; else that the outcome is unknown."""
        try:
            found = self.stored_outcome()
        except StoreUnavailable:
            found = None
        exchange, call = self.exchange, self.call
        return exchange.unknown_outcome_response(call) if found is None else exchange.answer(found, call)

    def stored_outcome(self) -> Replay | InDoubt | None:
        """Return what the record holds for this request, if that is a response or an unknown outcome."""
        found = atomic.peek_alone(self.call, self.exchange.using)
        return found if isinstance(found, Replay | InDoubt) else None
