"""A connection that is reset without a word of the server's, at any moment around the provider's call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import Status
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.operations import Op, operation
from testproject.payments.models import LedgerEntry
from tests.kit.calls import BOOKED
from tests.kit.proxy import ALIAS, Proxy, Theft

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

PAID = "paid"


class Payment:
    """A late payment; `during` runs in the provider's call, `between` and `after` in the first run of its writes."""

    def __init__(self, **moments: Callable[[], object]) -> None:
        self.moments, self.charges, self.writes = moments, 0, 0

    def charge(self) -> None:
        self.charges += 1
        self.moments.get("during", bool)()

    def write(self) -> HttpResponse:
        self.writes += 1
        for moment in ("before", "between", "after"):
            if self.writes == 1:
                self.moments.get(moment, bool)()
            if moment != "after":
                LedgerEntry.objects.using(ALIAS).create(reference=PAID, account=moment, amount=700)
        return HttpResponse(PAID, status=201)

    def view(self) -> Any:
        @idempotent(transaction="late", share_anonymous=True)
        def pay(request: Any) -> HttpResponse:
            self.charge()
            response: HttpResponse = request.idempotency.finish(self.write)
            return response

        return pay


def post(view: Any, settings: Any, key: str) -> Any:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    return Client(raise_request_exception=False).post("/it", headers={"Idempotency-Key": key})


def entries() -> int:
    return LedgerEntry.objects.using("default").filter(reference=PAID).count()


def status() -> str:
    return IdempotencyKey.objects.using("default").get().status


@pytest.mark.parametrize("moment", ["during", "before", "between", "after"])
def test_a_late_view_stores_its_response_on_a_new_connection(moment: str, proxy: Proxy, settings: Any) -> None:
    payment, key = Payment(**{moment: proxy.reset}), str(uuid4())
    first = post(payment.view(), settings, key)
    assert (first.status_code, entries(), status()) == (201, 2, Status.COMPLETED), first.content
    assert (payment.charges, payment.writes) == (1, 2)
    again = post(payment.view(), settings, key)
    assert (again.status_code, again["Idempotency-Replayed"], payment.charges) == (201, "true", 1)


@pytest.mark.parametrize("theft", [Theft.MESSAGE, Theft.ANSWER], ids=lambda each: each.name)
@pytest.mark.parametrize("statement", [b"INSERT", b"UPDATE", b"BEGIN"])
def test_a_statement_that_is_lost_runs_again_before_the_commit(
    statement: bytes, theft: Theft, proxy: Proxy, settings: Any
) -> None:
    """The completion is the only UPDATE."""
    payment = Payment(during=lambda: proxy.steal(statement, theft))
    first = post(payment.view(), settings, str(uuid4()))
    assert proxy.stolen.is_set()
    assert (first.status_code, entries(), status()) == (201, 2, Status.COMPLETED), first.content
    assert payment.charges == 1


def test_a_claim_of_once_does_too(proxy: Proxy) -> None:
    payment = Payment(between=proxy.reset)

    def run(claim: Claim) -> Any:
        payment.charge()
        return claim.finish(lambda: payment.write().status_code)

    assert once(scope="billing", key="1", run=run) == 201
    assert (entries(), status(), payment.charges) == (2, Status.COMPLETED, 1)


@pytest.mark.usefixtures("registrations")
def test_the_response_of_an_operation_is_stored_on_a_new_connection(proxy: Proxy, settings: Any) -> None:
    payment = Payment()

    @operation("reset")
    def reset(op: Op) -> Any:
        op.phase("write", lambda: payment.write().status_code)
        proxy.steal(b"BEGIN", Theft.MESSAGE)
        return BOOKED

    @idempotent(transaction="late", share_anonymous=True, on_lost_lease="resume")
    def pay(request: Any) -> HttpResponse:
        response: HttpResponse = request.idempotency.run(reset)
        return response

    first = post(pay, settings, str(uuid4()))
    assert proxy.stolen.is_set()
    assert (first.status_code, entries(), status()) == (201, 2, Status.COMPLETED), first.content
