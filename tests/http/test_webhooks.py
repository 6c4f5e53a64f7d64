"""A webhook that cannot do its work now is answered 503 with Retry-After: the provider delivers it again."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_POST

from django_idempotency.decorators import deliver_again
from django_idempotency.exceptions import (
    KeyReused,
    LostFence,
    NotExecuted,
    OutcomeUnknown,
    StillRunning,
    StoreUnavailable,
)
from testproject.gateway.signatures import HEADER, sign
from testproject.payments.models import LedgerEntry
from tests.kit.databases import nobody_answers
from tests.kit.http import atomic_requests

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__), pytest.mark.vendor]

CHARGE = {"id": "ch_1", "amount": 5}
EVENT = {"id": "evt_1", "type": "charge.succeeded", "charge": CHARGE}
RAISED: list[BaseException] = []


def book() -> HttpResponse:
    LedgerEntry.objects.create(reference="evt_1", account="gateway", amount=5)
    if RAISED:
        raise RAISED[0]
    return HttpResponse("booked")


@require_POST
@deliver_again
def function(request: HttpRequest) -> HttpResponse:
    return book()


@deliver_again
async def async_function(request: HttpRequest) -> HttpResponse:
    return await sync_to_async(book)()


@method_decorator(deliver_again, name="dispatch")
class Webhook(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return book()


@method_decorator(deliver_again, name="dispatch")
class AsyncWebhook(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await sync_to_async(book)()


@deliver_again
@transaction.non_atomic_requests
def outside(request: HttpRequest) -> HttpResponse:
    assert not connection.in_atomic_block
    return book()


@transaction.non_atomic_requests
@deliver_again
def outside_too(request: HttpRequest) -> HttpResponse:
    return outside(request)


urlpatterns = [
    path("function", function),
    path("async-function", async_function),
    path("class", Webhook.as_view()),
    path("async-class", AsyncWebhook.as_view()),
    path("outside", outside),
    path("outside-too", outside_too),
    path("", include("testproject.urls")),
]
SYNC = ["/function", "/class"]
EVERY = [*SYNC, "/async-function", "/async-class", "/outside", "/outside-too"]


@pytest.fixture(autouse=True)
def _nothing_raised() -> None:
    RAISED.clear()


def deliver(to: str, event: Any = EVENT) -> Any:
    body = json.dumps(event)
    headers = {HEADER: sign("whsec_demo", body.encode())}
    return Client(raise_request_exception=False).post(to, body, "application/json", headers=headers)


def bookings() -> int:
    return LedgerEntry.objects.filter(reference="evt_1").count()


@pytest.mark.parametrize(
    "charge", [CHARGE, {**CHARGE, "key": "unknown", "currency": "EUR", "customer": "ada"}], ids=["no key", "key"]
)
def test_the_services_webhook_is_delivered_again_when_the_database_is_back(charge: Any) -> None:
    event = {**EVENT, "charge": charge}
    with nobody_answers():
        away = deliver("/webhooks/gateway/", event)
    assert (away.status_code, away["Retry-After"]) == (503, "2")
    assert deliver("/webhooks/gateway/", event).status_code == 200
    assert bookings() == 1


@pytest.mark.parametrize("to", EVERY)
def test_a_views_own_queries_count_as_well(to: str, caplog: pytest.LogCaptureFixture) -> None:
    with nobody_answers():
        away = deliver(to)
    assert (away.status_code, away["Retry-After"], away["Cache-Control"]) == (503, "2", "no-store")
    (logged,) = [each for each in caplog.records if each.name == "django_idempotency"]
    assert (logged.levelno, logged.exc_info is not None) == (logging.ERROR, True)
    assert (deliver(to).status_code, bookings()) == (200, 1)


@pytest.mark.parametrize("to", SYNC)
def test_the_transaction_of_atomic_requests_may_fail_as_well(to: str) -> None:
    with nobody_answers(), atomic_requests():
        assert deliver(to).status_code == 503
    with atomic_requests():
        assert (deliver(to).status_code, bookings()) == (200, 1)


@pytest.mark.parametrize("error", [StillRunning(), OperationalError("deadlock")], ids=repr)
@pytest.mark.parametrize("to", SYNC)
def test_what_was_written_under_atomic_requests_is_rolled_back(to: str, error: Exception) -> None:
    RAISED.append(error)
    with atomic_requests():
        assert (deliver(to).status_code, bookings()) == (503, 0)
        RAISED.clear()
        assert (deliver(to).status_code, bookings()) == (200, 1)


@pytest.mark.parametrize("to", ["/outside", "/outside-too"])
def test_a_view_that_opted_out_of_atomic_requests_stays_outside(to: str) -> None:
    with atomic_requests():
        assert deliver(to).status_code == 200


@pytest.mark.parametrize("error", [StoreUnavailable(), OutcomeUnknown(), LostFence(), InterfaceError()], ids=repr)
@pytest.mark.parametrize("to", ["/function", "/async-function"])
def test_a_failure_that_the_next_delivery_may_not_meet_is_logged(
    to: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    RAISED.append(error)
    assert (deliver(to).status_code, deliver(to)["Retry-After"]) == (503, "2")
    assert "is to be delivered again" in caplog.text


@pytest.mark.parametrize(
    ("error", "wait"), [(StillRunning(), "2"), (StillRunning(retry_after=30), "30"), (NotExecuted(), "2")], ids=repr
)
def test_an_event_whose_time_has_not_come_is_no_error(error: Exception, wait: str, caplog: Any) -> None:
    RAISED.append(error)
    answer = deliver("/function")
    assert (answer.status_code, answer["Retry-After"]) == (503, wait)
    assert [each for each in caplog.records if each.name == "django_idempotency" and each.levelno > logging.INFO] == []


@pytest.mark.parametrize("error", [KeyReused(), IntegrityError(), ValueError()], ids=repr)
@pytest.mark.parametrize("to", ["/function", "/async-function"])
def test_what_no_delivery_will_change_stays_an_error(to: str, error: Exception) -> None:
    RAISED.append(error)
    assert deliver(to).status_code == 500
