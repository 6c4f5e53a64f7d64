"""Transports for httpx. The only module that imports it."""

from collections.abc import Collection
from contextlib import aclosing, closing
from typing import Any, Final

import anyio
import httpx

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.retrying import CallRules, Service, converse

_NETWORK_ERRORS: Final = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


class IdempotentTransport(httpx.BaseTransport):
    """Adds an idempotency key to each POST and PATCH to the `origins`, and retries it until it has its response.

    A request to any other origin is sent once, as it is.
    `inner` is the transport that sends, `httpx.HTTPTransport()` by default.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        origins: Collection[str],
        rules: CallRules | None = None,
    ) -> None:
        self._inner, self._service = inner or httpx.HTTPTransport(), Service(origins, rules)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if (call := self._service.call(request, _read_body, _ask)) is None:
            return self._inner.handle_request(request)
        return converse(call, self._send, _rebuild, _NETWORK_ERRORS)

    def _send(self, request: httpx.Request) -> tuple[httpx.Response, ReceivedResponse]:
        response: Any = self._inner.handle_request(request)
        with closing(response.stream) as stream:
            return response, _receive(response, b"".join(stream))

    def close(self) -> None:
        self._inner.close()


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """Does what `IdempotentTransport` does, for `httpx.AsyncClient`. It uses the outbox in a thread."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        origins: Collection[str],
        rules: CallRules | None = None,
    ) -> None:
        self._inner, self._service = inner or httpx.AsyncHTTPTransport(), Service(origins, rules)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if (call := self._service.call(request, _read_body, _ask)) is None:
            return await self._inner.handle_async_request(request)
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
