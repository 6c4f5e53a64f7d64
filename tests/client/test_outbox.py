"""A named call is on disk before it is sent, has one response for ever, and is finished by the next process."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import httpx
import pytest
import requests
import requests.auth

from django_idempotency.client import (
    AsyncIdempotentTransport,
    CallError,
    ChangedRequest,
    IdempotentAdapter,
    IdempotentTransport,
    KeyExpired,
    KeyReused,
    Outbox,
    OutcomeUnknown,
    OutgoingCall,
    TooOld,
)
from tests.client.libraries import FAST, Library, with_httpx
from tests.kit.scripted import Scripted, ScriptedService, problem

OK = Scripted(201, {"X-Order": "17", "Set-Cookie": "session=1"})
GIVEN_UP = replace(FAST, deadline=0, unknown=0)


def open_names(outbox: Outbox) -> list[str]:
    return [call.name for call in outbox.store.open_calls()]


def test_a_call_is_stored_before_it_is_sent(service: ScriptedService, send: Library, outbox: Outbox) -> None:
    service.script = [OK]
    seen: list[Any] = []
    service.on_request = lambda request: seen.extend(outbox.store.open_calls())
    send("POST", f"{service.url}/orders", b"body", {"Content-Type": "text/plain"}, outbox=outbox)
    ((request,), (call,)) = service.got, seen
    assert (call.name, call.key, call.body) == ("order-17", request.key, b"body")
    assert (call.method, call.url, call.headers["content-type"]) == ("POST", f"{service.url}/orders", "text/plain")
    assert open_names(outbox) == []


def test_its_response_is_given_again_and_nothing_is_sent(
    service: ScriptedService, send: Library, outbox: Outbox
) -> None:
    service.script = [OK, Scripted(500)]
    first = send("POST", service.url, outbox=outbox)
    assert send("POST", service.url, outbox=outbox) == first == (201, OK.body)
    assert len(service.got) == 1


def test_no_credential_is_on_disk(service: ScriptedService, send: Library, outbox: Outbox, tmp_path: Path) -> None:
    service.script = [OK]
    send("POST", service.url, outbox=outbox, headers={"X-Api-Key": "another-secret"})
    (file,) = tmp_path.iterdir()
    assert b"secret" not in file.read_bytes()
    assert b"session=1" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503, 307])
def test_what_is_no_outcome_leaves_it_open(
    service: ScriptedService, send: Library, outbox: Outbox, status: int
) -> None:
    service.script = [Scripted(status), OK]
    assert send("POST", service.url, outbox=outbox, rules=GIVEN_UP).status == status
    assert open_names(outbox) == ["order-17"]
    assert send("POST", service.url, outbox=outbox).status == 201
    assert len({request.key for request in service.got}) == 1


@pytest.mark.parametrize("script", [Scripted(402), Scripted(500, {"Idempotency-Replayed": "true"})])
def test_a_refusal_and_a_stored_response_are_outcomes(
    service: ScriptedService, send: Library, outbox: Outbox, script: Scripted
) -> None:
    service.script = [script]
    send("POST", service.url, outbox=outbox)
    assert open_names(outbox) == []


def test_an_error_of_the_layer_leaves_it_open(service: ScriptedService, send: Library, outbox: Outbox) -> None:
    service.script = [problem(409, "outcome_unknown"), OK]
    with pytest.raises(OutcomeUnknown):
        send("POST", service.url, outbox=outbox, rules=GIVEN_UP)
    assert open_names(outbox) == ["order-17"]


def test_another_request_under_the_name_is_not_sent(service: ScriptedService, send: Library, outbox: Outbox) -> None:
    service.script = [OK]
    send("POST", service.url, outbox=outbox)
    for changed in (("POST", service.url, b"other"), ("POST", f"{service.url}/other"), ("PATCH", service.url)):
        with pytest.raises(ChangedRequest, match="'order-17'"):
            send(*changed, outbox=outbox)
    with pytest.raises(ChangedRequest):
        send("POST", service.url, outbox=outbox, headers={"Idempotency-Key": "another"})
    assert len(service.got) == 1


def test_a_key_of_your_own_is_kept(service: ScriptedService, send: Library, outbox: Outbox) -> None:
    service.script = [Scripted(500), OK]
    send("POST", service.url, outbox=outbox, headers={"Idempotency-Key": "mine"})
    send("POST", service.url, outbox=outbox)
    assert [request.key for request in service.got] == ["mine", "mine"]


def test_an_open_call_that_the_service_may_have_forgotten_is_not_sent(service: ScriptedService, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", max_age=0)
    service.script = [Scripted(500), OK]
    with_httpx("POST", service.url, outbox=outbox)
    with pytest.raises(TooOld, match="'order-17'"):
        with_httpx("POST", service.url, outbox=outbox)
    assert len(service.got) == 1


def test_a_block_without_a_call_is_an_error(service: ScriptedService, outbox: Outbox) -> None:
    """The client has no transport of ours, or nothing was sent."""
    service.script = [OK]
    with pytest.raises(CallError, match="'order-17'"), outbox.once("order-17"):
        httpx.get(service.url)
    with pytest.raises(ZeroDivisionError), outbox.once("order-17"):
        _ = 1 / 0


def test_a_redirected_call_is_the_same_call(service: ScriptedService, send: Library, outbox: Outbox) -> None:
    service.script = [Scripted(308, {"Location": "/moved"}), OK]
    for _ in range(2):
        assert send("POST", f"{service.url}/", b"body", outbox=outbox) == (201, OK.body)
    assert [(each.path, each.body) for each in service.got] == [("/", b"body"), ("/moved", b"body")]
    assert len({request.key for request in service.got}) == 1
    assert open_names(outbox) == []


def test_a_second_call_in_the_block_is_not_sent(service: ScriptedService, outbox: Outbox) -> None:
    service.script = [OK]
    key = {"Idempotency-Key": "mine"}
    with (
        httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=FAST), headers=key) as client,
        outbox.once("order-17"),
    ):
        client.post(f"{service.url}/one")
        with pytest.raises(ChangedRequest):
            client.post(f"{service.url}/two")
    assert len(service.got) == 1


def test_a_login_that_sends_the_request_again_keeps_its_key(service: ScriptedService, outbox: Outbox) -> None:
    challenge = Scripted(401, {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'})
    service.script = [challenge, OK, challenge, OK]
    transport, login = IdempotentTransport(origins=[service.url], rules=FAST), httpx.DigestAuth("ada", "pw")
    with httpx.Client(transport=transport, auth=login) as client, outbox.once("httpx"):
        assert client.post(service.url, content=b"body").status_code == 201
    with requests.Session() as session, outbox.once("requests"):
        session.mount("http://", IdempotentAdapter(origins=[service.url], rules=FAST))
        session.auth = requests.auth.HTTPDigestAuth("ada", "pw")
        assert session.post(service.url, data=b"body", timeout=30).status_code == 201
    first, second, third, fourth = (request.key for request in service.got)
    assert (first, third) == (second, fourth)
    assert first != third
    assert open_names(outbox) == []


class TokenAuth(httpx.Auth):
    """Posts for a token with the client that it is given to."""

    requires_response_body = True

    def __init__(self, url: str) -> None:
        self.url = url

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        response = yield httpx.Request("POST", self.url, data={"client_secret": "planted"})
        request.headers["Authorization"] = response.headers["x-token"]
        yield request


def test_the_request_of_a_login_for_its_token_is_not_the_call(
    service: ScriptedService, outbox: Outbox, tmp_path: Path
) -> None:
    token = Scripted(200, {"X-Token": "fresh"})
    service.script = [token, Scripted(500), token, OK, token, OK]
    login = TokenAuth(f"{service.url}/token")
    with httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=GIVEN_UP), auth=login) as client:
        with outbox.once("sync"):
            client.send(httpx.Request("POST", f"{service.url}/sync", content=b"body"))
        assert [result.status_code for _, result in outbox.resume(client, origin=service.url)] == [201]

    async def call() -> None:
        async with httpx.AsyncClient(
            transport=AsyncIdempotentTransport(origins=[service.url], rules=FAST), auth=login
        ) as client:
            with outbox.once("async"):
                await client.post(f"{service.url}/async", content=b"body")

    anyio.run(call)
    assert [request.path for request in service.got] == ["/token", "/sync", "/token", "/sync", "/token", "/async"]
    assert {request.headers["authorization"] for request in service.got[1::2]} == {"fresh"}
    assert service.got[1].key == service.got[3].key
    assert open_names(outbox) == []
    assert all(b"planted" not in file.read_bytes() for file in tmp_path.iterdir())


def test_a_call_from_the_future_is_not_sent(service: ScriptedService, outbox: Outbox) -> None:
    """The clock was wrong when it was stored, or is wrong now."""
    service.script = [OK]
    outbox.store.add(OutgoingCall("order-17", "key", "POST", f"{service.url}/", b"{}", {}, time.time() + 86_400))
    with pytest.raises(TooOld):
        with_httpx("POST", f"{service.url}/", outbox=outbox)
    assert service.got == []


def leave_open(service: ScriptedService, outbox: Outbox, *names: str) -> None:
    service.script = [Scripted(500)]
    for name in names:
        with_httpx("POST", f"{service.url}/{name}", f"body of {name}".encode(), outbox=outbox, name=name)


def test_resume_finishes_what_is_open_with_fresh_credentials(service: ScriptedService, outbox: Outbox) -> None:
    leave_open(service, outbox, "one", "two", "three")
    first = {request.path: (request.key, request.body) for request in service.got}
    service.script, service.got = [problem(422, "key_reused_with_different_payload"), OK], []
    with httpx.Client(
        transport=IdempotentTransport(origins=[service.url], rules=FAST), headers={"Authorization": "fresh"}
    ) as client:
        resumed = dict(outbox.resume(client, origin=service.url))
    assert list(resumed) == ["one", "two", "three"]
    assert type(resumed["one"]) is KeyReused
    assert (resumed["two"].status_code, resumed["three"].status_code) == (201, 201)
    assert {request.path: (request.key, request.body) for request in service.got} == first
    assert {request.headers["authorization"] for request in service.got} == {"fresh"}
    assert open_names(outbox) == ["one"]


def test_a_session_of_requests_resumes_too(service: ScriptedService, outbox: Outbox) -> None:
    leave_open(service, outbox, "one", "two")
    service.script = [OK, Scripted(402)]
    with requests.Session() as session:
        session.mount("http://", IdempotentAdapter(origins=[service.url], rules=FAST))
        resumed = [(name, response.status_code) for name, response in outbox.resume(session, origin=service.url)]
    assert (resumed, open_names(outbox)) == ([("one", 201), ("two", 402)], [])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_and_an_async_client(service: ScriptedService, outbox: Outbox, backend: str) -> None:
    leave_open(service, outbox, "one", "two")
    service.script = [problem(410, "key_expired"), OK]

    async def resume() -> dict[str, Any]:
        async with httpx.AsyncClient(transport=AsyncIdempotentTransport(origins=[service.url], rules=FAST)) as client:
            with outbox.once("three"):
                await client.get(service.url)
                await client.post(f"{service.url}/three")
            return {name: result async for name, result in outbox.aresume(client, origin=service.url)}

    service.script.insert(0, OK)
    service.script.insert(0, OK)
    resumed = anyio.run(resume, backend=backend)
    assert list(resumed) == ["one", "two"]
    assert (type(resumed["one"]), resumed["two"].status_code) == (KeyExpired, 201)


def test_resume_sends_the_stored_address_without_what_the_client_adds(service: ScriptedService, outbox: Outbox) -> None:
    """The default parameters of the client are in it already, and it has them with a value of that time."""
    params = {"version": "1", "shop": "a&b"}
    service.script = [Scripted(500)]
    with httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=GIVEN_UP), params=params) as client:
        for name in ("sync", "async", "requests"):
            with outbox.once(name):
                client.post(f"{service.url}/{name}?a=1%7C2&a=%C3%A9'(~)")
        sent, service.got = [request.path for request in service.got], []
        ((first, _), *_others) = outbox.resume(client, origin=service.url)
        assert (first, dict(client.params)) == ("sync", params)

    async def resume() -> list[Any]:
        async with httpx.AsyncClient(
            transport=AsyncIdempotentTransport(origins=[service.url], rules=GIVEN_UP), params=params
        ) as client:
            return [result async for result in outbox.aresume(client, origin=service.url)]

    anyio.run(resume)
    with requests.Session() as session:
        session.mount("http://", IdempotentAdapter(origins=[service.url], rules=GIVEN_UP))
        for session.params in (params, list(params.items())):
            assert [result.status_code for _, result in outbox.resume(session, origin=service.url)] == [500] * 3
    assert [request.path for request in service.got] == sent * 4


def test_a_session_without_a_timeout_of_its_own_gets_one(service: ScriptedService, outbox: Outbox) -> None:
    leave_open(service, outbox, "one")
    service.script, released = [OK], Event()
    service.on_request = lambda request: released.wait(30)
    with requests.Session() as session:
        session.mount("http://", IdempotentAdapter(origins=[service.url], rules=GIVEN_UP))
        ((name, error),) = outbox.resume(session, origin=service.url, timeout=0.01)
    released.set()
    assert (name, type(error)) == ("one", requests.ReadTimeout)


def test_resume_never_makes_another_key(service: ScriptedService, outbox: Outbox) -> None:
    """A call may be deleted while those before it are sent, and a client may lack the transport."""
    leave_open(service, outbox, "one", "two")
    store: Any = outbox.store
    service.on_request = lambda request: request.path == "/one" and store.forget("two")
    with httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=FAST)) as client:
        assert [name for name, _ in outbox.resume(client, origin=service.url)] == ["one", "two"]
    service.on_request = lambda request: None
    with httpx.Client() as plain:
        assert [type(error) for _, error in outbox.resume(plain, origin=service.url)] == [CallError, CallError]
    assert len({request.key for request in service.got if request.path == "/one"}) == 1
    assert len({request.key for request in service.got if request.path == "/two"}) == 1
    assert open_names(outbox) == ["one", "two"]


def test_callers_at_the_same_time_have_one_key_and_one_response(service: ScriptedService, outbox: Outbox) -> None:
    """The service gives each a response of its own, which one that deduplicates would not."""
    service.script = [Scripted(201, body=str(number).encode()) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        got = set(pool.map(lambda _: with_httpx("POST", service.url, outbox=outbox), range(8)))
    assert len({request.key for request in service.got}) == 1
    assert len(got) == 1
    assert got == {with_httpx("POST", service.url, outbox=outbox)}


def test_old_calls_are_pruned_and_open_ones_stay(service: ScriptedService, outbox: Outbox, tmp_path: Path) -> None:
    leave_open(service, outbox, "open")
    service.script = [OK]
    with_httpx("POST", service.url, outbox=outbox, name="done")
    store: Any = outbox.store
    store.prune(3600)
    assert with_httpx("POST", service.url, outbox=outbox, name="done").status == 201
    assert len(service.got) == 2
    store.prune(0)
    with_httpx("POST", service.url, outbox=outbox, name="done")
    assert len(service.got) == 3
    assert open_names(outbox) == ["open"]
    store.forget("open")
    assert open_names(outbox) == []


def test_concurrent_async_calls_have_names_of_their_own(service: ScriptedService, outbox: Outbox) -> None:
    service.script = [OK]

    async def call(client: httpx.AsyncClient, name: str) -> str:
        with outbox.once(name) as block:
            await client.post(f"{service.url}/{name}")
            return block.key

    async def calls() -> list[str]:
        async with httpx.AsyncClient(transport=AsyncIdempotentTransport(origins=[service.url], rules=FAST)) as client:
            return await asyncio.gather(*(call(client, f"call-{number}") for number in range(20)))

    keys = asyncio.run(calls())
    assert len(set(keys)) == 20
    assert {(request.path, request.key) for request in service.got} == {
        (f"/call-{number}", key) for number, key in enumerate(keys)
    }
