"""A request as it is sent, the response to it as it came, and where both are kept."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol
from urllib.parse import urljoin, urlsplit

# The body is kept decoded. Cookies are credentials.
_NOT_KEPT: Final = {"content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive", "set-cookie"}
# Not those about credentials, a limit, a route or a service that is away: the call may yet have another outcome.
_FINAL: Final = {*range(200, 300), *range(400, 500)} - {401, 403, 404, 405, 407, 408, 421, 425, 429}


def find_origin(url: object) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of an address; an empty host if it has none."""
    with suppress(ValueError):
        parts = urlsplit(str(url).replace("\\", "/"))  # as libraries and browsers read it
        return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return "", "", None


@dataclass(frozen=True)
class ReceivedResponse:
    """A response with its decoded body. Its header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_replay(self) -> bool:
        """True if the service says that it has stored this response."""
        return "true" in (self.headers.get("idempotency-replayed"), self.headers.get("idempotent-replayed"))

    @property
    def is_outcome(self) -> bool:
        """True if this response is final: a stored response, a success, or an error about the contents of the call."""
        return self.is_replay or (self.status in _FINAL and not self.is_accepted)

    @property
    def is_accepted(self) -> bool:
        """True if a worker will do the work, and the response is yet to come."""
        return self.status == 202 and self.members.get("code") == "idempotency_key_accepted"

    @property
    def shows_response(self) -> bool:
        """True if this is the status of accepted work that has ended: a retry gets the response."""
        return self.status == 200 and {"operation_ref", "response"} <= self.members.keys()

    @property
    def members(self) -> dict[str, Any]:
        """The members of a JSON object; empty for any other body."""
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(self.body), dict):
                return found
        return {}

    @property
    def retry_after(self) -> float:
        """The seconds of Retry-After; 0 without one."""
        value = self.headers.get("retry-after", "").strip()
        if value.isdecimal():
            return float(value)
        with suppress(ValueError, OverflowError):
            date = parsedate_to_datetime(value).replace(tzinfo=UTC)  # each date of HTTP is in GMT
            return max((date - datetime.now(UTC)).total_seconds(), 0.0)
        return 0.0

    def find_location(self, url: str) -> str:
        """Return the address of Location, which may be relative to `url`. Without a Location it is `url`."""
        with suppress(ValueError):
            return urljoin(url, self.headers.get("location", ""))
        return ""

    def without_transport(self) -> "ReceivedResponse":
        """Return the response as the outbox stores it."""
        return replace(self, headers={name: self.headers[name] for name in self.headers if name not in _NOT_KEPT})


@dataclass(frozen=True)
class OutgoingCall:
    """A named request, and its response once it has one."""

    name: str
    key: str  # the value of the header
    method: str
    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)  # never credentials, unless the outbox was told to
    created: float = 0.0  # seconds since the epoch
    response: ReceivedResponse | None = None


class CallStore(Protocol):
    """A table of calls. What a method writes must be on disk when it returns.

    Async code calls the methods in a thread, or with `await run_in_thread(function, *arguments)` if the table has it.
    """

    def add(self, call: OutgoingCall) -> OutgoingCall:
        """Store the call unless its name is taken. Return the stored call with that name."""

    def finish(self, name: str, response: ReceivedResponse) -> ReceivedResponse:
        """Store the response unless the call has one. Return the stored response."""

    def open_calls(self) -> Iterable[OutgoingCall]:
        """Return the calls without a response, the oldest first."""
