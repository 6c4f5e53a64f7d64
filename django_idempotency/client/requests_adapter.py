"""The adapter for requests. The only module that imports it, and the urllib3 that it brings."""

from io import BytesIO
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import UnrepeatableBody
from django_idempotency.client.retrying import CallRules, Conversation, KeyMemory, converse, run_blocking

_NETWORK_ERRORS: Final = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


class IdempotentAdapter(HTTPAdapter):
    """Adds an idempotency key to each POST and PATCH, and retries the request until it has its response.

    All other arguments are those of `requests.adapters.HTTPAdapter`.
    """

    def __init__(self, *args: Any, rules: CallRules | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._memory = KeyMemory(rules or CallRules())

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        send = super().send
        if not self._memory.rules.take(request):
            return send(request, *args, **kwargs)

        async def send_next(call: Conversation) -> tuple[requests.Response, ReceivedResponse]:
            response = send(_next_request(call), *args, **kwargs)
            headers = {name.lower(): value for name, value in response.headers.items()}
            return response, ReceivedResponse(response.status_code, headers, response.content)

        def rebuild(kept: ReceivedResponse) -> requests.Response:
            raw = HTTPResponse(BytesIO(kept.body), kept.headers, kept.status, preload_content=False)
            return self.build_response(request, raw)

        call = Conversation(self._memory, request, _read_body(request.body))
        return run_blocking(converse(call, send_next, rebuild, _NETWORK_ERRORS))


def _read_body(body: Any) -> bytes:
    """Return the bytes of a body. A generator, stream or file is refused."""
    if isinstance(body, str):
        return body.encode()
    if body is None or isinstance(body, bytes):
        return body or b""
    raise UnrepeatableBody


def _next_request(call: Conversation) -> requests.PreparedRequest:
    """Return the request, or that for the status of accepted work."""
    request: requests.PreparedRequest = call.request
    if call.poll:
        request = requests.PreparedRequest()
        request.prepare(method="GET", url=call.poll, headers=call.poll_headers())
    return request
