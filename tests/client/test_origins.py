"""Keys, retries, bodies and credentials go to the services that were named, and to no other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
from asgiref.sync import async_to_sync

from django_idempotency.client import (
    AsyncIdempotentTransport,
    IdempotentAdapter,
    IdempotentTransport,
    OtherOrigin,
    Outbox,
    OutgoingCall,
)
from django_idempotency.contrib.outbox.store import ModelStore
from tests.client.libraries import FAST, Library
from tests.kit.scripted import Scripted, ScriptedService, scripted_service

OK = Scripted()
SECRET = {"Authorization": "secret", "X-Api-Key": "secret", "Content-Type": "text/plain"}


@pytest.fixture
def other() -> Iterator[ScriptedService]:
    with scripted_service() as running:
        running.script = [OK]
        yield running


def resume_with_httpx(outbox: Outbox, url: str) -> list[str]:
    transport = IdempotentTransport(origins=[url], rules=FAST)
    with httpx.Client(transport=transport, base_url=f"{url}/v1/", headers=SECRET) as client:
        return [name for name, _ in outbox.resume(client)]


def resume_with_async_httpx(outbox: Outbox, url: str) -> list[str]:
    async def resume() -> list[str]:
        transport = AsyncIdempotentTransport(origins=[url], rules=FAST)
        async with httpx.AsyncClient(transport=transport, headers=SECRET) as client:
            return [name async for name, _ in outbox.aresume(client, origin=url)]

    return async_to_sync(resume)()


def resume_with_requests(outbox: Outbox, url: str) -> list[str]:
    with requests.Session() as session:
        session.mount(url, IdempotentAdapter(origins=[url], rules=FAST))
        session.headers.update(SECRET)
        return [name for name, _ in outbox.resume(session, origin=url, timeout=30)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("resume", [resume_with_httpx, resume_with_async_httpx, resume_with_requests])
def test_a_client_resumes_the_calls_of_its_own_service(
    service: ScriptedService, other: ScriptedService, outbox: Outbox, resume: Any
) -> None:
    service.script = [OK]
    for each in (outbox, Outbox(ModelStore())):
        for name, url in (("mail", other.url), ("pay", service.url)):
            each.store.add(OutgoingCall(name, name, "POST", f"{url}/{name}", b"{}", {}, time.time()))
        assert resume(each, service.url) == ["pay"]
        assert [call.name for call in each.store.open_calls()] == ["mail"]
    assert ([request.key for request in service.got], other.got) == (["pay", "pay"], [])


def test_a_client_of_no_service_resumes_nothing(service: ScriptedService, outbox: Outbox) -> None:
    outbox.store.add(OutgoingCall("pay", "key", "POST", service.url, b"{}", {}, time.time()))
    for client in (httpx.Client(), requests.Session()):
        with client, pytest.raises(ValueError, match="Name the service"):
            list(outbox.resume(client))
    assert service.got == []


def test_a_service_that_was_not_named_gets_no_key_and_one_try(
    service: ScriptedService, other: ScriptedService, send: Library, outbox: Outbox
) -> None:
    other.script = [Scripted(503), OK]
    assert send("POST", other.url, origins=[service.url]).status == 503
    other.script = [Scripted(503), OK]
    assert send("POST", other.url, headers={"Idempotency-Key": "mine"}, origins=[service.url]).status == 503
    assert [request.key for request in other.got] == [None, "mine"]
    with pytest.raises(OtherOrigin, match="'order-17'"):
        send("POST", other.url, origins=[service.url], outbox=outbox)
    assert (len(other.got), list(outbox.store.open_calls())) == (2, [])


@pytest.mark.parametrize(("method", "status"), [("POST", 307), ("POST", 308), ("PATCH", 301)])
def test_a_redirect_takes_no_call_to_another_host(
    service: ScriptedService, other: ScriptedService, send: Library, method: str, status: int
) -> None:
    service.script = [Scripted(status, {"Location": f"{other.url}/steal"})]
    with pytest.raises(OtherOrigin, match="/steal"):
        send(method, service.url, b"card", SECRET, origins=[service.url, other.url])
    assert other.got == []


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_is_followed_without_the_body_takes_nothing(
    service: ScriptedService, other: ScriptedService, send: Library, status: int
) -> None:
    service.script = [Scripted(status, {"Location": f"{other.url}/see"})]
    assert send("POST", service.url, b"card", SECRET, origins=[service.url, other.url]).status == 201
    (request,) = other.got
    assert (request.method, request.key, request.body) == ("GET", None, b"")
    assert "secret" not in request.headers.values()
    assert set(request.headers) <= {"host", "accept", "accept-encoding", "connection", "user-agent"}


def test_a_redirect_to_an_address_that_libraries_read_in_two_ways_takes_nothing(
    service: ScriptedService, other: ScriptedService, send: Library
) -> None:
    for location in ("http://[", "http://service:99999999/", f"{other.url}\\@{service.url[7:]}/"):
        service.script = [Scripted(307, {"Location": location})]
        with pytest.raises((OtherOrigin, httpx.HTTPError, requests.RequestException)):
            send("POST", service.url, b"card")
    assert (len(service.got), other.got) == (3, [])


@pytest.mark.parametrize("origins", [[], "https://api.example.com", ["api.example.com"], ["https://"], [""]])
def test_a_service_has_an_address(origins: Any) -> None:
    for make in (IdempotentTransport, AsyncIdempotentTransport, IdempotentAdapter):
        with pytest.raises(ValueError, match="is a list of addresses"):
            make(origins=origins)
