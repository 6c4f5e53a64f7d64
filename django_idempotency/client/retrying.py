"""One call from its key to its outcome: when it is sent again, and how long to wait. No HTTP library is needed."""

import random
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import ChangedRequest, InProgress, OutcomeUnknown, UnrepeatableBody, read_error
from django_idempotency.client.outbox import CURRENT_BLOCK

R = TypeVar("R")
_Send = Callable[[Any], tuple[R, ReceivedResponse]]
_KEYED: Final = ("POST", "PATCH")
_RETRIED: Final = {425, 429, 502, 503, 504}


def _ignore(_status: dict[str, Any]) -> None: ...  # pickle knows it by its name


@dataclass(frozen=True)
class CallRules:
    """When and for how long a transport retries calls. All times are in seconds."""

    header: str = "Idempotency-Key"
    deadline: float = 60  # no try begins later than this after the first
    unknown: float = 30  # how long an unknown outcome is asked about
    backoff: float = 0.5  # the longest pause before the second try; it doubles with each try
    longest: float = 20  # the longest pause, unless Retry-After asks for more
    wait: bool = False  # follow a 202 to the response of the work
    wait_for: float = 3600  # how long
    progress: Callable[[dict[str, Any]], object] = _ignore  # gets the JSON of each 202 meanwhile

    def take(self, request: Any) -> bool:
        """Return True if the request is a call: its method gets a key, or it has a key already."""
        return request.method in _KEYED or self.header in request.headers


class KeyMemory(OrderedDict[str, bytes]):
    """What was sent with which key by one transport, so that a changed body is found before it is sent."""

    def check(self, key: str, body: bytes) -> None:
        if self.setdefault(key, digest := sha256(body).digest()) != digest:
            raise ChangedRequest(key=key)
        if len(self) > 10_000:
            self.popitem(last=False)


class Conversation:
    """A call with its key: the request to send next after a pause. The pause is None once there is a response."""

    def __init__(self, rules: CallRules, memory: KeyMemory, request: Any, body: bytes | None, ask: Any) -> None:
        """`ask` makes a request for the response of accepted work, from this one, an address and headers."""
        if body is None:
            raise UnrepeatableBody
        self.rules, self.request, self._memory, self._body, self._ask = rules, request, memory, body, ask
        # A client of httpx gives a timeout to each request that it is asked to send, not to those that its auth makes.
        extensions = getattr(request, "extensions", ("timeout",))
        self.block = CURRENT_BLOCK.get() if request.method in _KEYED and "timeout" in extensions else None
        self.pause: float | None = 0.0
        self._tries, self._is_accepted = 0, False
        self._end, self._unknown_end = time.monotonic() + rules.deadline, 0.0

    def begin(self) -> ReceivedResponse | None:
        """Give the request its key. Return the response that the call has already, if it has."""
        headers, header = self.request.headers, self.rules.header
        is_given = header in headers
        self.key = headers.setdefault(header, f'"{uuid4()}"')
        if is_given:
            self._memory.check(f"{self.request.method} {self.key}", self._body)
        if self.block is None:
            return None
        call = self.block.enter(self.request, self._body, header, is_given=is_given)
        self.key = headers[header] = call.key
        return call.response

    def after_failure(self, error: Exception) -> None:
        """Plan another try after a network error; raise it if the deadline does not allow one."""
        error.add_note(f"It is not known whether the request took effect. Its key was {self.key}: use it again.")
        self._plan(self._end, 0, error)

    def after(self, response: ReceivedResponse) -> None:
        """Plan another try if this is not the response. Raise what it says went wrong for good."""
        error, end = read_error(response, self.key), 0.0
        if isinstance(error, OutcomeUnknown):
            end = self._unknown_end = self._unknown_end or time.monotonic() + self.rules.unknown
        elif self._follow(response) or isinstance(error, InProgress) or response.status in _RETRIED:
            end = self._end
        self._plan(0.0 if response.is_replay else end, response.retry_after, error)  # a replay never changes

    def _follow(self, response: ReceivedResponse) -> bool:
        """Return whether the response to accepted work is yet to come. Ask for it where the service says."""
        if self.rules.wait and response.is_accepted and not self._is_accepted:
            self._is_accepted, self._end = True, time.monotonic() + self.rules.wait_for
            url = str(self.request.url)
            address = urljoin(url, response.headers.get("location", ""))
            if address != url and urlsplit(address)[:2] == urlsplit(url)[:2]:  # the same origin gets the credentials
                unfit = ("content-", self.rules.header.lower())  # for a request without a body
                headers = {k: v for k, v in self.request.headers.items() if not k.lower().startswith(unfit)}
                self.request = self._ask(self.request, address, headers)
        if is_coming := self._is_accepted and response.status == 202:
            self.rules.progress(response.members)
        return is_coming

    def _plan(self, end: float, least: float, error: Exception | None) -> None:
        """Plan a pause with full jitter, at least as long as the service asks for, unless it is over after the end."""
        most = self.rules.backoff if least else self.rules.backoff * 2 ** min(self._tries, 30)
        self._tries += 1
        pause = least + random.uniform(0, min(most, self.rules.longest))  # noqa: S311 - it keeps no secret
        self.pause = pause if time.monotonic() + pause <= end else None
        if self.pause is None and error is not None:
            raise error


def converse(call: Conversation, send: _Send[R], rebuild: Callable[[ReceivedResponse], R], failures: Any) -> R:
    """Send until there is a response. Return it as the library's own, or rebuild the one that was kept before."""
    if kept := call.begin():
        return rebuild(kept)
    while call.pause is not None:
        time.sleep(call.pause)
        try:
            response, received = send(call.request)
        except failures as error:
            call.after_failure(error)
        else:
            call.after(received)
    kept = call.block.finish(received) if call.block else received
    return response if kept is received else rebuild(kept)
