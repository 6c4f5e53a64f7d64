"""Transports for httpx. The only module that imports it."""

from contextlib import aclosing, closing
from typing import Any, Final

import anyio
import httpx

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import UnrepeatableBody
from django_idempotency.client.retrying import CallRules, Conversation, KeyMemory, call_here, converse, run_blocking

_NETWORK_ERRORS: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


class IdempotentTransport(httpx.BaseTransport):
    """Adds an idempotency key to each POST and PATCH, and retries the request until it has its response.

    `inner` is the transport that sends, `httpx.HTTPTransport()` by default.
    """

    def __init__(self, inner: httpx.BaseTransport | None = None, *, rules: CallRules | None = None) -> None:
        self._inner, self._memory = inner or httpx.HTTPTransport(), KeyMemory(rules or CallRules())

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._memory.rules.take(request):
            return self._inner.handle_request(request)
        call = Conversation(self._memory, request, _read_body(request))
        return run_blocking(converse(call, self._send, _rebuild, _NETWORK_ERRORS))

    async def _send(self, call: Conversation) -> tuple[httpx.Response, ReceivedResponse]:
        response: Any = self._inner.handle_request(_next_request(call))
        with closing(response.stream) as stream:
            return _receive(response, b"".join(stream))

    def close(self) -> None:
        self._inner.close()


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """Does what `IdempotentTransport` does, for `httpx.AsyncClient`. It uses the outbox in a thread."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None, *, rules: CallRules | None = None) -> None:
        self._inner, self._memory = inner or httpx.AsyncHTTPTransport(), KeyMemory(rules or CallRules())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._memory.rules.take(request):
            return await self._inner.handle_async_request(request)
        call = Conversation(self._memory, request, _read_body(request))
        run = call.block.outbox.run_in_thread if call.block else call_here
        return await converse(call, self._send, _rebuild, _NETWORK_ERRORS, anyio.sleep, run)

    async def _send(self, call: Conversation) -> tuple[httpx.Response, ReceivedResponse]:
        response: Any = await self._inner.handle_async_request(_next_request(call))
        async with aclosing(response.stream) as stream:
            return _receive(response, b"".join([part async for part in stream]))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _read_body(request: httpx.Request) -> bytes:
    """Return the body, and let the request send these bytes each time. A body without a length is refused."""
    if "Transfer-Encoding" in request.headers or not isinstance(request.stream, httpx.SyncByteStream):
        raise UnrepeatableBody
    return request.read()


def _next_request(call: Conversation) -> httpx.Request:
    """Return the request, or that for the status of accepted work."""
    request: httpx.Request = call.request
    if call.poll:
        request = httpx.Request("GET", call.poll, headers=call.poll_headers(), extensions=request.extensions)
    return request


def _receive(response: httpx.Response, body: bytes) -> tuple[httpx.Response, ReceivedResponse]:
    """Read the response, and let the client read the same bytes again."""
    response.stream = httpx.ByteStream(body)
    decoded = httpx.Response(response.status_code, headers=response.headers, stream=response.stream).read()
    return response, ReceivedResponse(response.status_code, dict(response.headers), decoded)


def _rebuild(kept: ReceivedResponse) -> httpx.Response:
    return httpx.Response(kept.status, headers=dict(kept.headers), stream=httpx.ByteStream(kept.body))
