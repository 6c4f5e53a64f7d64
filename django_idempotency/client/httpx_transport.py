"""Transports for httpx. The only module that imports it."""

from contextlib import aclosing, closing
from typing import Any, Final

import anyio
import httpx

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.retrying import CallRules, Conversation, KeyMemory, converse

_NETWORK_ERRORS: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


class IdempotentTransport(httpx.BaseTransport):
    """Adds an idempotency key to each POST and PATCH, and retries the request until it has its response.

    `inner` is the transport that sends, `httpx.HTTPTransport()` by default.
    """

    def __init__(self, inner: httpx.BaseTransport | None = None, *, rules: CallRules | None = None) -> None:
        self._inner, self._rules, self._memory = inner or httpx.HTTPTransport(), rules or CallRules(), KeyMemory()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._rules.take(request):
            return self._inner.handle_request(request)
        call = Conversation(self._rules, self._memory, request, _read_body(request), _ask)
        return converse(call, self._send, _rebuild, _NETWORK_ERRORS)

    def _send(self, request: httpx.Request) -> tuple[httpx.Response, ReceivedResponse]:
        response: Any = self._inner.handle_request(request)
        with closing(response.stream) as stream:
            return response, _receive(response, b"".join(stream))

    def close(self) -> None:
        self._inner.close()


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """Does what `IdempotentTransport` does, for `httpx.AsyncClient`. It uses the outbox in a thread."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None, *, rules: CallRules | None = None) -> None:
        self._inner, self._rules, self._memory = inner or httpx.AsyncHTTPTransport(), rules or CallRules(), KeyMemory()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._rules.take(request):
            return await self._inner.handle_async_request(request)
        call = Conversation(self._rules, self._memory, request, _read_body(request), _ask)
        if kept := await call.block.outbox.run_in_thread(call.begin) if call.block else call.begin():
            return _rebuild(kept)
        while call.pause is not None:
            await anyio.sleep(call.pause)
            try:
                response: Any = await self._inner.handle_async_request(call.request)
                async with aclosing(response.stream) as stream:
                    received = _receive(response, b"".join([part async for part in stream]))
            except _NETWORK_ERRORS as error:
                call.after_failure(error)
            else:
                call.after(received)
        kept = await call.block.outbox.run_in_thread(call.block.finish, received) if call.block else received
        return response if kept is received else _rebuild(kept)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _read_body(request: httpx.Request) -> bytes | None:
    """Return the body, and let the request send these bytes each time; None if it has no length."""
    has_length = "Transfer-Encoding" not in request.headers and isinstance(request.stream, httpx.SyncByteStream)
    return request.read() if has_length else None


def _ask(request: httpx.Request, url: str, headers: dict[str, str]) -> httpx.Request:
    return httpx.Request("GET", url, headers=headers, extensions=request.extensions)


def _receive(response: httpx.Response, body: bytes) -> ReceivedResponse:
    """Decode the body, and let the client read the same bytes again."""
    response.stream = httpx.ByteStream(body)
    decoded = httpx.Response(response.status_code, headers=response.headers, stream=response.stream).read()
    return ReceivedResponse(response.status_code, dict(response.headers), decoded)


def _rebuild(kept: ReceivedResponse) -> httpx.Response:
    return httpx.Response(kept.status, headers=dict(kept.headers), stream=httpx.ByteStream(kept.body))
