"""What is sent again and what is not, with the same key and the same bytes."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from django_idempotency.client import (
    CallRules,
    ChangedRequest,
    IdempotentAdapter,
    OutcomeUnknown,
    ReceivedResponse,
    UnrepeatableBody,
)
from django_idempotency.client.httpx_transport import IdempotentTransport
from django_idempotency.client.retrying import Conversation, KeyMemory, Service
from tests.client.libraries import FAST, LIBRARIES, Library
from tests.kit.scripted import Scripted, ScriptedService, problem

ROOT = Path(__file__).resolve().parents[2]
OK = Scripted()
PASSING = [Scripted(status) for status in (425, 429, 502, 503, 504)]
LOST = [Scripted(cut=0), Scripted(cut=4)]


def test_every_try_has_the_same_key_and_the_same_bytes(service: ScriptedService, send: Library) -> None:
    service.script = [*PASSING, *LOST, problem(409, "key_in_progress"), OK]
    assert send("POST", f"{service.url}/orders", b'{"amount": 5}') == (201, OK.body)
    assert len(service.got) == 9
    (key,) = {request.key for request in service.got}
    assert key is not None
    assert len(key) > 30
    assert {request.body for request in service.got} == {b'{"amount": 5}'}


def test_each_call_has_a_key_of_its_own(service: ScriptedService) -> None:
    service.script = [OK]
    with httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=FAST)) as client:
        client.post(service.url, json={})
        client.post(service.url, json={})
    assert len({request.key for request in service.got}) == 2


def test_a_key_that_is_there_stays(service: ScriptedService, send: Library) -> None:
    service.script = [Scripted(503), OK]
    send("POST", service.url, headers={"Idempotency-Key": "mine"})
    assert [request.key for request in service.got] == ["mine", "mine"]


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_another_method_is_sent_again_only_with_a_key(service: ScriptedService, send: Library, method: str) -> None:
    service.script = [Scripted(503), OK]
    assert send(method, service.url).status == 503
    assert service.got[0].key is None
    service.script = [Scripted(503), OK]
    assert send(method, service.url, headers={"Idempotency-Key": "mine"}).status == 201


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 500])
def test_an_error_of_the_service_itself_is_returned(service: ScriptedService, send: Library, status: int) -> None:
    service.script = [Scripted(status, body=b'{"code": "card_declined"}'), OK]
    assert send("POST", service.url).status == status
    assert len(service.got) == 1


@pytest.mark.parametrize("status", [201, 500])
def test_a_body_that_is_nested_too_deeply_is_returned(service: ScriptedService, send: Library, status: int) -> None:
    service.script = [Scripted(status, body=b"[" * 100_000)]
    assert send("POST", service.url) == (status, b"[" * 100_000)


def test_a_redirect_is_followed_with_the_same_key(service: ScriptedService, send: Library) -> None:
    """303 turns the request into a GET, whose empty body is no change of the call."""
    service.script = [Scripted(307, {"Location": "/moved"}), Scripted(303, {"Location": "/made"}), OK]
    assert send("POST", f"{service.url}/", b"body", {"Idempotency-Key": "mine"}).status == 201
    assert [(each.method, each.path, each.key, each.body) for each in service.got] == [
        ("POST", "/", "mine", b"body"),
        ("POST", "/moved", "mine", b"body"),
        ("GET", "/made", "mine", b""),
    ]


def test_a_stored_response_is_never_asked_for_again(service: ScriptedService, send: Library) -> None:
    service.script = [Scripted(503, {"Idempotency-Replayed": "true"}), OK]
    assert send("POST", service.url).status == 503


def test_a_wait_beyond_the_deadline_is_not_begun(service: ScriptedService, send: Library) -> None:
    service.script = [Scripted(503, {"Retry-After": "61"}), OK]
    assert send("POST", service.url).status == 503
    assert len(service.got) == 1


def conversation(rules: CallRules = FAST) -> Conversation:
    call = Conversation(Service(["http://service"], rules), httpx.Request("POST", "http://service/"), b"", ask=None)
    call.begin()
    return call


def pause_after(call: Conversation, response: ReceivedResponse) -> float | None:
    call.after(response)
    return call.pause


def received(status: int, retry_after: str = "", **members: Any) -> ReceivedResponse:
    headers = {"retry-after": retry_after} if retry_after else {}
    return ReceivedResponse(status, headers, json.dumps(members).encode())


@pytest.mark.parametrize("retry_after", ["30", "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_a_pause_is_at_least_what_the_service_asks_for(retry_after: str) -> None:
    pause = pause_after(conversation(CallRules(deadline=1e10)), received(503, retry_after))
    assert pause is not None
    assert pause >= 30


def test_a_date_that_has_passed_or_that_is_none_asks_for_nothing() -> None:
    for retry_after in ("Thu, 01 Jan 1970 00:00:00 GMT", "soon", "-1", f"Fri, 01 Jan {10**20} 00:00:00 GMT"):
        assert received(503, retry_after).retry_after == 0


def test_pauses_have_full_jitter_and_grow_to_a_limit() -> None:
    rules = CallRules(backoff=1, longest=4, deadline=1e9)
    tries = [conversation(rules) for _ in range(200)]
    for most in (1, 2, 4, 4):
        pauses = [pause_after(each, received(503)) or 0 for each in tries]
        assert min(pauses) < most / 4
        assert most / 2 < max(pauses) <= most


def test_an_unknown_outcome_is_asked_about_and_then_raised(service: ScriptedService, send: Library) -> None:
    service.script = [problem(409, "outcome_unknown", operation_ref="r-1", safe_new_key=False)]
    with pytest.raises(OutcomeUnknown) as caught:
        send("POST", service.url, rules=replace(FAST, unknown=0.1))
    assert (caught.value.operation_ref, caught.value.safe_new_key, caught.value.status) == ("r-1", False, 409)
    assert caught.value.key == service.got[0].key
    assert len(service.got) > 1


def test_it_has_a_budget_of_its_own() -> None:
    call = conversation(CallRules(deadline=0, unknown=60))
    assert pause_after(call, received(409, code="idempotency_outcome_unknown")) is not None
    assert pause_after(conversation(CallRules(deadline=0)), received(503)) is None


def test_an_unknown_outcome_that_is_settled_is_the_response(service: ScriptedService, send: Library) -> None:
    service.script = [problem(409, "outcome_unknown"), problem(409, "outcome_unknown"), OK]
    assert send("POST", service.url).status == 201


def refused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_after_the_deadline_the_error_of_the_library_tells_the_key(send: Library) -> None:
    with pytest.raises((httpx.ConnectError, requests.ConnectionError)) as caught:
        send("POST", f"http://127.0.0.1:{refused_port()}", rules=replace(FAST, deadline=0.05))
    (note,) = caught.value.__notes__
    assert "use it again" in note


def test_a_body_that_can_be_sent_only_once_is_refused(service: ScriptedService, send: Library) -> None:
    async def chunks() -> Any:
        yield b"{}"

    body: Any = chunks() if send is LIBRARIES["httpx async"] else iter([b"{}"])
    with pytest.raises(UnrepeatableBody):
        send("POST", service.url, body)
    assert service.got == []


def test_a_file_of_httpx_is_read_once(service: ScriptedService, tmp_path: Any) -> None:
    (tmp_path / "body").write_bytes(b"x" * 100)
    service.script = [Scripted(503), OK]
    with (
        (tmp_path / "body").open("rb") as file,
        httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=FAST)) as client,
    ):
        assert client.post(service.url, files={"file": file}).status_code == 201
    assert service.got[0].body == service.got[1].body


def test_another_body_with_the_same_key_is_not_sent(service: ScriptedService) -> None:
    service.script = [OK]
    session = {"Idempotency-Key": "mine"}
    with httpx.Client(transport=IdempotentTransport(origins=[service.url], rules=FAST), headers=session) as client:
        client.post(service.url, json={"amount": 5})
        client.post(service.url, json={"amount": 5})
        with pytest.raises(ChangedRequest):
            client.post(service.url, json={"amount": 6})
    assert len(service.got) == 2


IN_ANOTHER_PROCESS = """
import pickle, sys
session = pickle.load(sys.stdin.buffer)
for body in (b"body", b"other"):
    try:
        print(session.post(sys.argv[1], data=body, headers={"Idempotency-Key": "mine"}, timeout=30).status_code)
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_pickled_session_keeps_its_rules_and_its_memory(service: ScriptedService) -> None:
    service.script = [OK, Scripted(503), OK]
    with requests.Session() as session:
        session.mount("http://", IdempotentAdapter(origins=[service.url], max_retries=0, rules=FAST))
        session.post(service.url, data=b"body", headers={"Idempotency-Key": "mine"}, timeout=30)
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, service.url]
        done = subprocess.run(
            command, cwd=ROOT, input=pickle.dumps(session), capture_output=True, check=False, timeout=60
        )
    assert (done.stdout.split(), done.stderr) == ([b"201", b"ChangedRequest"], b"")
    assert [request.body for request in service.got] == [b"body"] * 3


def test_a_memory_of_keys_has_an_end() -> None:
    memory = KeyMemory()
    for number in range(20_000):
        memory.check(str(number), b"")
    assert len(memory) == 10_000


def test_accepted_work_is_followed_to_its_response(service: ScriptedService, send: Library) -> None:
    steps: list[dict[str, Any]] = []
    running = Scripted(202, {"Retry-After": "0"}, b'{"status": "pending", "progress": [1, 3]}')
    service.script = [accepted(), running, Scripted(503), running, Scripted(201, body=b"done")]
    got = send("POST", f"{service.url}/exports", rules=replace(FAST, wait=True, deadline=5, progress=steps.append))
    assert got == (201, b"done")
    assert [(each.method, each.path) for each in service.got] == [("POST", "/exports"), *[("GET", "/status/1")] * 4]
    assert [each.headers["authorization"] for each in service.got] == ["secret"] * 5
    assert [each.key for each in service.got[1:]] == [None] * 4
    assert [step.get("progress") for step in steps] == [None, [1, 3], [1, 3]]


def test_a_retry_gets_the_response_when_the_status_says_that_there_is_one(
    service: ScriptedService, send: Library
) -> None:
    outcome = {"operation_ref": "6d4c1ac1-8153-534e-9866-caebcaeda68a", "status": "completed", "response": {}}
    done = Scripted(200, body=json.dumps(outcome).encode())
    service.script = [
        accepted(),
        Scripted(202, {"Retry-After": "0"}),
        done,
        Scripted(201, {"Idempotency-Replayed": "true"}, b"done"),
    ]
    got = send("POST", f"{service.url}/exports", rules=replace(FAST, wait=True))
    assert got == (201, b"done")
    assert [each.method for each in service.got] == ["POST", "GET", "GET", "POST"]
    assert service.got[0].body == service.got[3].body
    assert service.got[0].key == service.got[3].key


def accepted(location: str = "/status/1") -> Scripted:
    return problem(202, "key_accepted", {"Location": location} if location else {})


def test_accepted_work_is_returned_without_wait(service: ScriptedService, send: Library) -> None:
    service.script = [accepted()]
    assert send("POST", service.url).status == 202


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/status/1", "http://example.invalid/", ""])
def test_credentials_go_to_the_same_origin_only(service: ScriptedService, send: Library, location: str) -> None:
    """The same request gets the response later, too."""
    service.script = [accepted(location), OK]
    assert send("POST", service.url, rules=replace(FAST, wait=True)).status == 201
    assert [each.method for each in service.got] == ["POST", "POST"]


def test_a_compressed_response_arrives_as_it_came(service: ScriptedService, send: Library) -> None:
    import gzip

    service.script = [Scripted(201, {"Content-Encoding": "gzip"}, gzip.compress(b"plain"))]
    assert send("POST", service.url) == (201, b"plain")
