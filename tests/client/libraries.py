"""The three clients behind one function, so that each test is about all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

import httpx
import requests
from asgiref.sync import async_to_sync

from django_idempotency.client import (
    AsyncIdempotentTransport,
    CallRules,
    IdempotentAdapter,
    IdempotentTransport,
    Outbox,
)

FAST = CallRules(backoff=0.001, longest=0.001)


class Got(NamedTuple):
    status: int
    body: bytes


class Library(Protocol):
    def __call__(
        self,
        method: str,
        url: str,
        body: Any = b"{}",
        headers: Mapping[str, str] | None = None,
        *,
        rules: CallRules = FAST,
        outbox: Outbox | None = None,
        name: str = "order-17",
        origins: Collection[str] = (),
    ) -> Got: ...


def with_httpx(
    method: str,
    url: str,
    body: Any = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    rules: CallRules = FAST,
    outbox: Outbox | None = None,
    name: str = "order-17",
    origins: Collection[str] = (),
) -> Got:
    transport = IdempotentTransport(origins=origins or [url], rules=rules)
    with httpx.Client(transport=transport, headers={"Authorization": "secret"}, follow_redirects=True) as client:
        if outbox is None:
            return got(client.request(method, url, content=body, headers=headers))
        with outbox.once(name):
            return got(client.request(method, url, content=body, headers=headers))


def with_async_httpx(
    method: str,
    url: str,
    body: Any = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    rules: CallRules = FAST,
    outbox: Outbox | None = None,
    name: str = "order-17",
    origins: Collection[str] = (),
) -> Got:
    async def send() -> httpx.Response:
        transport = AsyncIdempotentTransport(origins=origins or [url], rules=rules)
        credentials = {"Authorization": "secret"}
        async with httpx.AsyncClient(transport=transport, headers=credentials, follow_redirects=True) as client:
            if outbox is None:
                return await client.request(method, url, content=body, headers=headers)
            with outbox.once(name):
                return await client.request(method, url, content=body, headers=headers)

    return got(async_to_sync(send)())


def with_requests(
    method: str,
    url: str,
    body: Any = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    rules: CallRules = FAST,
    outbox: Outbox | None = None,
    name: str = "order-17",
    origins: Collection[str] = (),
) -> Got:
    with requests.Session() as session:
        session.mount("http://", IdempotentAdapter(origins=origins or [url], rules=rules))
        session.headers["Authorization"] = "secret"
        if outbox is None:
            return got(session.request(method, url, data=body, headers=headers, timeout=30))
        with outbox.once(name):
            return got(session.request(method, url, data=body, headers=headers, timeout=30))


def got(response: httpx.Response | requests.Response) -> Got:
    return Got(response.status_code, response.content)


LIBRARIES: dict[str, Library] = {"httpx": with_httpx, "httpx async": with_async_httpx, "requests": with_requests}
