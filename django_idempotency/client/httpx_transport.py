"""Transports for httpx. The only module that imports it."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from typing import Any, Final

import anyio
import httpx

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import UnrepeatableBody
from django_idempotency.client.outbox import current_block
from django_idempotency.client.retrying import (
    CallRules,
    Conversation,
    KeyMemory,
    call_here,
    converse,
    run_blocking,
    sleep_here,
)

_Send = Callable[[httpx.Request], Awaitable[tuple[httpx.Response, bytes]]]
_NETWORK_ERRORS: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


class _Transport:
    """What both transports do, apart from sending and waiting."""

    def __init__(self, inner: Any, rules: CallRules | None) -> None:
        self._inner, self._rules, self._memory = inner, rules or CallRules(), KeyMemory()

    def _takes(self, request: httpx.Request) -> bool:
        return request.method in self._rules.methods or self._rules.header in request.headers

    async def _converse(self, request: httpx.Request, send: _Send, sleep: Any, run: Any) -> httpx.Response:
        def begin() -> Conversation:
            body = _read_body(request)
            return Conversation(self._rules, self._memory, request.method, str(request.url), request.headers, body)

        async def send_next(call: Conversation) -> tuple[httpx.Response, ReceivedResponse]:
            response, body = await send(_next_request(call, request))
            return response, _receive(response, body)

        response, kept = await converse(begin, send_next, _NETWORK_ERRORS, sleep, run)
        return _rebuild(kept) if response is None else response


class IdempotentTransport(_Transport, httpx.BaseTransport):
    """Gives each POST and PATCH an idempotency key, and sends it again until it has its response.

    `inner` is the transport that sends, `httpx.HTTPTransport()` by default.
    """

    def __init__(self, inner: httpx.BaseTransport | None = None, *, rules: CallRules | None = None) -> None:
        super().__init__(inner or httpx.HTTPTransport(), rules)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._takes(request):
            return run_blocking(self._converse(request, self._send, sleep_here, call_here))
        response: httpx.Response = self._inner.handle_request(request)
        return response

    async def _send(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        response = self._inner.handle_request(request)
        with closing(response.stream) as stream:
            return response, b"".join(stream)

    def close(self) -> None:
        self._inner.close()


class AsyncIdempotentTransport(_Transport, httpx.AsyncBaseTransport):
    """Does the same for `httpx.AsyncClient`. The outbox is read and written in a thread."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None, *, rules: CallRules | None = None) -> None:
        super().__init__(inner or httpx.AsyncHTTPTransport(), rules)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._takes(request):
            block, in_thread = current_block(), anyio.to_thread.run_sync
            run = getattr(block.outbox.store, "run_in_thread", in_thread) if block else call_here
            return await self._converse(request, self._send, anyio.sleep, run)
        response: httpx.Response = await self._inner.handle_async_request(request)
        return response

    async def _send(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        response = await self._inner.handle_async_request(request)
        async with aclosing(response.stream) as stream:
            return response, b"".join([part async for part in stream])

    async def aclose(self) -> None:
        await self._inner.aclose()


def _read_body(request: httpx.Request) -> bytes:
    """Return the body, and let the request send these bytes each time. A body without a length is refused."""
    if "Transfer-Encoding" in request.headers or not isinstance(request.stream, httpx.SyncByteStream):
        raise UnrepeatableBody
    return request.read()


def _next_request(call: Conversation, request: httpx.Request) -> httpx.Request:
    """Return the request, or that for the status of accepted work."""
    if not call.poll:
        return request
    headers = call.poll_headers(request.headers)
    return httpx.Request("GET", call.poll, headers=headers, extensions=request.extensions)


def _receive(response: httpx.Response, body: bytes) -> ReceivedResponse:
    """Read the response, and let the client read the same bytes again."""
    response.stream = httpx.ByteStream(body)
    decoded = httpx.Response(response.status_code, headers=response.headers, stream=response.stream).read()
    return ReceivedResponse(response.status_code, dict(response.headers), decoded)


def _rebuild(kept: ReceivedResponse) -> httpx.Response:
    return httpx.Response(kept.status, headers=dict(kept.headers), stream=httpx.ByteStream(kept.body))
