"""The adapter for requests. The only module that imports it, and the urllib3 that it brings."""

from collections.abc import Collection
from io import BytesIO
from typing import Any, Final

import requests.adapters
from urllib3 import HTTPResponse

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.retrying import CallRules, Service, converse

_NETWORK_ERRORS: Final = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


class IdempotentAdapter(requests.adapters.HTTPAdapter):
    """Adds an idempotency key to each POST and PATCH to the `origins`, and retries it until it has its response.

    A request to any other origin is sent once, as it is.
    All other arguments are those of `requests.adapters.HTTPAdapter`.
    """

    __attrs__ = (*requests.adapters.HTTPAdapter.__attrs__, "_service")  # what pickle keeps

    def __init__(self, *args: Any, origins: Collection[str], rules: CallRules | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service = Service(origins, rules)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        send = super().send
        if (call := self._service.call(request, _read_body, _ask)) is None:
            return send(request, *args, **kwargs)

        def exchange(request: requests.PreparedRequest) -> tuple[requests.Response, ReceivedResponse]:
            got = send(request, *args, **kwargs)
            return got, ReceivedResponse(got.status_code, dict(got.headers.lower_items()), got.content)

        def rebuild(kept: ReceivedResponse) -> requests.Response:
            raw = HTTPResponse(BytesIO(kept.body), kept.headers, kept.status, preload_content=False)
            return self.build_response(request, raw)

        return converse(call, exchange, rebuild, _NETWORK_ERRORS)


def _ask(_request: requests.PreparedRequest, url: str, headers: dict[str, str]) -> requests.PreparedRequest:
    return requests.Request("GET", url, headers).prepare()


def _read_body(request: requests.PreparedRequest) -> bytes | None:
    """Return the body; None if it is a generator, stream or file, which can be sent only once."""
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    return body if isinstance(body, bytes) else None
