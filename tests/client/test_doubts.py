"""The client says that nothing was done only if no try of the call can have had an effect."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
import requests
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency.client import (
    IdempotentTransport,
    KeyRejected,
    NothingDone,
    Outbox,
    OutcomeUnknown,
    ResponseLost,
)
from django_idempotency.decorators import idempotent
from tests.client.libraries import FAST, Library
from tests.kit.scripted import Scripted, ScriptedService, problem

OVER = {"Retry-After": "61"}  # beyond the deadline
UNAVAILABLE = problem(503, "store_unavailable", OVER)
REJECTED = problem(403, "principal_missing")
LOST = Scripted(cut=0)
LONG = "9GkX2pQ7rLw4TzB8nVc5Yd"
MINE = {"Idempotency-Key": "mine"}


@pytest.mark.parametrize("last", [UNAVAILABLE, problem(503, "not_executed", OVER), REJECTED])
def test_an_earlier_try_may_have_had_an_effect(service: ScriptedService, send: Library, last: Scripted) -> None:
    for earlier in (LOST, Scripted(cut=4), Scripted(502), problem(409, "outcome_unknown")):
        service.script = [earlier, problem(503, "not_executed"), last]
        with pytest.raises(OutcomeUnknown, match="earlier try") as caught:
            send("POST", service.url)
        assert (caught.value.status, caught.value.key) == (last.status, service.got[-1].key)
        assert caught.value.safe_new_key is False


@pytest.mark.parametrize(("last", "kind"), [(UNAVAILABLE, NothingDone), (REJECTED, KeyRejected)])
def test_every_try_had_such_an_answer(
    service: ScriptedService, send: Library, last: Scripted, kind: type[Exception]
) -> None:
    service.script = [problem(503, "not_executed"), problem(503, "store_unavailable"), last]
    with pytest.raises(kind):
        send("POST", service.url)


def test_the_service_itself_proves_that_no_try_had_an_effect(service: ScriptedService, send: Library) -> None:
    service.script = [LOST, problem(408, "work_abandoned", effect="none", safe_new_key=True)]
    with pytest.raises(NothingDone):
        send("POST", service.url)


def test_the_service_itself_is_in_doubt(service: ScriptedService, send: Library) -> None:
    service.script = [problem(500, "attempts_exhausted", effect="possible", safe_new_key=False)]
    with pytest.raises(OutcomeUnknown) as caught:
        send("POST", service.url)
    assert caught.value.effect == "possible"


def test_a_response_that_the_service_could_not_store_is_neither_a_success_nor_sent_again(
    service: ScriptedService, send: Library, outbox: Outbox
) -> None:
    members = {"effect": "done", "safe_new_key": False, "first_status": 201, "operation_ref": "r-1"}
    service.script = [LOST, problem(409, "response_not_stored", {"Location": "/payments/17/"}, **members)]
    with pytest.raises(ResponseLost) as caught:
        send("POST", service.url, outbox=outbox)
    error = caught.value
    assert (error.effect, error.first_status, error.location) == ("done", 201, "/payments/17/")
    assert (error.operation_ref, error.safe_new_key, len(service.got)) == ("r-1", False, 2)


def test_the_tries_of_another_call_with_the_key_are_not_known(service: ScriptedService, send: Library) -> None:
    service.script = [UNAVAILABLE]
    with pytest.raises(OutcomeUnknown):
        send("POST", service.url, headers=MINE)
    service.script = [problem(400, "key_invalid")]
    with pytest.raises(KeyRejected):
        send("POST", service.url, headers=MINE)


@pytest.mark.parametrize("last", [UNAVAILABLE, REJECTED])
def test_the_tries_of_another_process_are_not_known(
    service: ScriptedService, send: Library, outbox: Outbox, last: Scripted
) -> None:
    service.script = [LOST]
    with pytest.raises((httpx.TransportError, requests.RequestException)):
        send("POST", service.url, outbox=outbox, rules=replace(FAST, deadline=0))
    service.script = [last]
    with pytest.raises(OutcomeUnknown):
        send("POST", service.url, outbox=outbox)


@idempotent(operation="exports", mode="atomic", share_anonymous=True)
def large(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"x" * 2**21, status=201, headers={"Location": "/exports/17/"})


urlpatterns = [path("exports/", large)]


@pytest.mark.django_db
@pytest.mark.urls(__name__)
def test_the_package_itself_tells_of_a_response_that_it_could_not_store() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        got = Client().post(request.url.path, headers={"Idempotency-Key": request.headers["Idempotency-Key"]})
        return httpx.Response(got.status_code, headers=dict(got.items()), content=got.content)

    transport = IdempotentTransport(httpx.MockTransport(serve), origins=["http://testserver"])
    with httpx.Client(transport=transport, base_url="http://testserver") as client:
        first = client.post("/exports/", headers={"Idempotency-Key": LONG})
        with pytest.raises(ResponseLost) as caught:
            client.post("/exports/", headers={"Idempotency-Key": LONG})
    assert (first.status_code, len(first.content)) == (201, 2**21)
    assert (caught.value.effect, caught.value.first_status, caught.value.location) == ("done", 201, "/exports/17/")
