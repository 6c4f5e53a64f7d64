"""Each request that may write has a key: the test's own, or a new one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory
from django.urls import path
from rest_framework.test import APIClient, APIRequestFactory

from django_idempotency.testing import AsyncIdempotentClient, IdempotentAPIClient, IdempotentClient, add_keys
from django_idempotency.testing.clients import Sent


def echo(request: HttpRequest) -> JsonResponse:
    said = {"key": request.headers.get("Idempotency-Key"), "body": request.body.decode(), "type": request.content_type}
    return JsonResponse(said | {"query": request.GET.dict()})


urlpatterns = [path("echo", echo)]
CLIENTS = [IdempotentClient, IdempotentAPIClient]
METHODS = ["post", "put", "patch", "delete"]


@pytest.fixture(autouse=True)
def _own_urls(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.testing.test_clients"


def send(client: Any, method: str = "post", **options: Any) -> dict[str, Any]:
    data = {} if method == "get" else {"data": b"{}", "content_type": "application/json"}
    said: dict[str, Any] = getattr(client, method)("/echo", **data, **options).json()
    return said


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("method", METHODS)
def test_each_write_has_a_new_key(client: Callable[[], Any], method: str) -> None:
    one, other = (send(client(), method)["key"] for _ in range(2))
    assert UUID(one) != UUID(other)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_read_has_none(client: Callable[[], Any]) -> None:
    assert send(client(), "get")["key"] is None


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_that_the_test_sends_is_kept(client: Any) -> None:
    assert send(client(), headers={"idempotency-key": "mine"})["key"] == "mine"
    assert send(client(), HTTP_IDEMPOTENCY_KEY="mine")["key"] == "mine"
    assert send(client(headers={"Idempotency-Key": "mine"}))["key"] == "mine"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_repeat_is_the_same_request(client: Any) -> None:
    mine = client()
    first = mine.post("/echo?a=1", {"b": "ü"}).json()
    mine.get("/echo")
    assert mine.repeat().json() == first
    assert mine.last_key == first["key"]
    assert "form-data" in first["body"]
    assert first["query"] == {"a": "1"}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_fixed_or_left_out(client: Any) -> None:
    mine = client()
    assert send(mine.with_key("order-17"))["key"] == "order-17"
    assert mine.repeat().json()["key"] == "order-17"
    assert send(mine.with_key(None))["key"] is None
    assert mine.last_key is None
    assert send(mine.with_key("mine"), headers={"Idempotency-Key": "other"})["key"] == "mine"
    assert UUID(send(mine)["key"])


def test_another_header_carries_the_key() -> None:
    class Own(IdempotentClient):
        key_header = "X-Request-Key"

    client = Own()
    send(client)
    assert client.last.options["headers"]["X-Request-Key"] == client.last_key


def test_nothing_was_sent_that_could_be_repeated() -> None:
    client = IdempotentClient()
    client.get("/echo")
    with pytest.raises(LookupError, match="POST"):
        client.repeat()


def test_a_request_is_composed_without_being_sent() -> None:
    client = IdempotentClient()
    sent = client.compose(lambda given: given.post("/nowhere", {"a": 1}, "application/json"))
    assert (sent.method, sent.path, json.loads(sent.data)) == ("POST", "/nowhere", {"a": 1})
    with pytest.raises(ValueError, match="sent no POST"):
        client.compose(lambda given: given.get("/echo"))


def test_credentials_are_left_out() -> None:
    sent = Sent("POST", "/", b"", None, {"HTTP_AUTHORIZATION": "a", "headers": {"Authorization": "b", "X-Kept": "c"}})
    assert sent.without_credentials().options == {"headers": {"X-Kept": "c"}}


def test_an_async_client_sends_keys() -> None:
    async def talk() -> tuple[Any, Any, Any, str | None]:
        client = AsyncIdempotentClient()
        first = await client.post("/echo", {"a": "1"})
        again = await client.repeat()
        fixed = await client.with_key("mine").post("/echo")
        return first.json(), again.json(), fixed.json(), client.last_key

    first, again, fixed, last = async_to_sync(talk)()
    assert first == again
    assert UUID(first["key"])
    assert fixed["key"] == last == "mine"


@pytest.mark.parametrize("client", [Client, APIClient, IdempotentClient])
def test_a_whole_suite_sends_keys(client: Callable[[], Any]) -> None:
    with add_keys():
        assert UUID(send(client())["key"])
        assert send(client(), headers={"Idempotency-Key": "mine"})["key"] == "mine"
        assert send(client(), "get")["key"] is None
    if client is not IdempotentClient:
        assert send(client())["key"] is None


@pytest.mark.parametrize("factory", [RequestFactory, AsyncRequestFactory, APIRequestFactory])
def test_a_request_factory_makes_keys(factory: Callable[[], Any]) -> None:
    with add_keys("X-Key"):
        assert UUID(factory().post("/").headers["X-Key"])
    assert "X-Key" not in factory().post("/").headers


def test_an_async_client_of_a_whole_suite_sends_keys() -> None:
    async def send_one() -> Any:
        return (await AsyncClient().post("/echo")).json()

    with add_keys():
        assert UUID(async_to_sync(send_one)()["key"])
