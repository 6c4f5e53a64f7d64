"""The adapter for requests. The only module that imports it, and the urllib3 that it brings."""

from io import BytesIO
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import UnrepeatableBody
from django_idempotency.client.retrying import (
    CallRules,
    Conversation,
    KeyMemory,
    call_here,
    converse,
    run_blocking,
    sleep_here,
)

_NETWORK_ERRORS: Final = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
)


class IdempotentAdapter(HTTPAdapter):
    """Gives each POST and PATCH an idempotency key, and sends it again until it has its response.

    Further arguments are those of `requests.adapters.HTTPAdapter`.
    """

    __attrs__ = (*HTTPAdapter.__attrs__, "_rules")

    def __init__(self, *args: Any, rules: CallRules | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rules, self._memory = rules or CallRules(), KeyMemory()

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        method, send = request.method or "", super().send
        if method not in self._rules.methods and self._rules.header not in request.headers:
            return send(request, *args, **kwargs)

        def begin() -> Conversation:
            body = _read_body(request)
            return Conversation(self._rules, self._memory, method, request.url or "", request.headers, body)

        async def send_next(call: Conversation) -> tuple[requests.Response, ReceivedResponse]:
            response = send(_next_request(call, request), *args, **kwargs)
            return response, _receive(response)

        response, kept = run_blocking(converse(begin, send_next, _NETWORK_ERRORS, sleep_here, call_here))
        if response is None:  # a 4xx is falsy
            raw = HTTPResponse(BytesIO(kept.body), kept.headers, kept.status, preload_content=False)
            response = self.build_response(request, raw)
        return response


def _read_body(request: requests.PreparedRequest) -> bytes:
    """Return the body. A generator, stream or file is refused."""
    body: Any = request.body
    if body is None or isinstance(body, bytes | str):
        return body.encode() if isinstance(body, str) else body or b""
    raise UnrepeatableBody


def _next_request(call: Conversation, request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return the request, or that for the status of accepted work."""
    if not call.poll:
        return request
    asking = requests.PreparedRequest()
    asking.prepare(method="GET", url=call.poll, headers=call.poll_headers(request.headers))
    return asking


def _receive(response: requests.Response) -> ReceivedResponse:
    """Read the response, which keeps its content for the session."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return ReceivedResponse(response.status_code, headers, response.content)
