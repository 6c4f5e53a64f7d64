"""From a request to its answer, in the mode that its policy declares."""

from asgiref.sync import sync_to_async
from django.http.response import HttpResponseBase

from django_idempotency.core.decisions import Call
from django_idempotency.core.policy import Mode, Transaction
from django_idempotency.http.atomic import run_atomic
from django_idempotency.http.context import inside
from django_idempotency.http.exchange import Exchange
from django_idempotency.http.leased import Leased


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
