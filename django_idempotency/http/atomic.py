"""A request in atomic mode: claim, view and finished row are one transaction."""

from collections.abc import Iterator
from functools import partial
from itertools import count

from django.http.response import HttpResponseBase

from django_idempotency import atomic
from django_idempotency.core.decisions import Answer, Call, InDoubt, InFlight
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import NotExecuted, OutcomeUnknown, StoreUnavailable
from django_idempotency.finishing import Attempt
from django_idempotency.http.context import Idempotency, attach
from django_idempotency.http.exchange import Exchange, NotKept
from django_idempotency.http.transactions import GivenUp
from django_idempotency.http.waiting import wait_for_answer


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
