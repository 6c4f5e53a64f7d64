"""One call from its key to its outcome: when it is sent again, and how long to wait. No HTTP library is needed."""

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar
from uuid import uuid4

from django_idempotency.client import errors
from django_idempotency.client.calls import ReceivedResponse, find_origin
from django_idempotency.client.outbox import CURRENT_BLOCK, OnceBlock

R = TypeVar("R")
_Send = Callable[[Any], tuple[R, ReceivedResponse]]
_KEYED: Final = ("POST", "PATCH")
_RETRIED: Final = {425, 429, 502, 503, 504}
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_HARMLESS: Final = {"host", "accept", "accept-encoding", "accept-language", "connection", "user-agent"}


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


class KeyMemory(OrderedDict[str, bytes]):
    """What was sent with which key by one transport, so that a changed body is found before it is sent."""

    def check(self, key: str, body: bytes) -> None:
        if self.setdefault(key, digest := sha256(body).digest()) != digest:
            raise errors.ChangedRequest(key=key)
        if len(self) > 10_000:
            self.popitem(last=False)


class Service:
    """A service that takes keys: its origins, the rules for its calls, and what was sent with which key."""

    def __init__(self, origins: Collection[str], rules: CallRules | None) -> None:
        self.origins = {find_origin(each) for each in origins}
        if isinstance(origins, str) or not self.origins or not all(host for _, host, _ in self.origins):
            raise ValueError(f"origins is a list of addresses such as https://api.example.com, not {origins!r}.")
        self.rules, self.memory = rules or CallRules(), KeyMemory()

    def call(self, request: Any, read_body: Callable[[Any], bytes | None], ask: Any) -> "Conversation | None":
        """Begin a call. Return None for a request that is sent once, as it is: it gets no key, or goes elsewhere."""
        if request.method not in _KEYED and self.rules.header not in request.headers:
            return None
        # A client of httpx gives a timeout to each request that it is asked to send, not to those that its auth makes.
        is_named = request.method in _KEYED and "timeout" in getattr(request, "extensions", ("timeout",))
        block = CURRENT_BLOCK.get() if is_named else None
        if find_origin(request.url) in self.origins:
            return Conversation(self, request, read_body(request), ask, block)
        if block:
            raise errors.OtherOrigin(f"The call {block.name!r} was not sent: {request.url} is not among the origins.")
        return None


class Conversation:
    """A call with its key: the request to send next after a pause. The pause is None once there is a response."""

    def __init__(
        self, service: Service, request: Any, body: bytes | None, ask: Any, block: OnceBlock | None = None
    ) -> None:
        """`ask` makes a request for the response of accepted work, from this one, an address and headers."""
        if body is None:
            raise errors.UnrepeatableBody
        self.rules, self._memory, self._body, self._ask, self.block = service.rules, service.memory, body, ask, block
        self.request = self._first = request
        self.pause: float | None = 0.0
        self._tries, self._is_accepted = 0, False
        self._is_given = self._is_doubted = False  # an earlier try may have had an effect
        self._end, self._unknown_end = time.monotonic() + self.rules.deadline, 0.0

    def begin(self) -> ReceivedResponse | None:
        """Give the request its key. Return the response that the call has already, if it has."""
        headers, header = self.request.headers, self.rules.header
        self._is_given = header in headers
        self.key = headers.setdefault(header, f'"{uuid4()}"')
        if self._is_given:
            self._memory.check(f"{self.request.method} {self.key}", self._body)
        if self.block is None:
            return None
        call = self.block.enter(self.request, self._body, header, is_given=self._is_given)
        self.key, self._is_doubted = call.key, self.block.is_resumed
        headers[header] = call.key
        return call.response

    def after_failure(self, error: Exception) -> None:
        """Plan another try after a network error; raise it if the deadline does not allow one."""
        self._is_doubted = True
        error.add_note(f"It is not known whether the request took effect. Its key was {self.key}: use it again.")
        self._plan(self._end, 0, error)

    def after(self, response: ReceivedResponse) -> None:
        """Plan another try if this is not the response. Raise what it says went wrong for good."""
        if self.request is not self._first and response.shows_response:
            self.request, self.pause = self._first, 0.0
            return
        error, end = errors.read_error(response, self.key), 0.0
        if isinstance(error, errors.OutcomeUnknown):
            end = self._unknown_end = self._unknown_end or time.monotonic() + self.rules.unknown
        elif self._follow(response) or isinstance(error, errors.InProgress) or response.status in _RETRIED:
            end = self._end
        if isinstance(error, errors.NothingDone | errors.KeyRejected):
            is_doubted = self._is_doubted or (self._is_given and isinstance(error, errors.NothingDone))
            error = errors.add_doubt(error, is_doubted=is_doubted)
        else:
            self._is_doubted = True
        self._leave_redirect(response)
        self._plan(0.0 if response.is_replay else end, response.retry_after, error)  # a replay never changes

    def _follow(self, response: ReceivedResponse) -> bool:
        """Return whether the response to accepted work is yet to come. Ask for it where the service says."""
        if self.rules.wait and response.is_accepted and not self._is_accepted:
            self._is_accepted, self._end = True, time.monotonic() + self.rules.wait_for
            url = str(self.request.url)
            address = response.find_location(url)
            if address != url and find_origin(address) == find_origin(url):  # the same origin gets the credentials
                unfit = ("content-", self.rules.header.lower())  # for a request without a body
                headers = {k: v for k, v in self.request.headers.items() if not k.lower().startswith(unfit)}
                self.request = self._ask(self.request, address, headers)
        if is_coming := self._is_accepted and response.status == 202:
            self.rules.progress(response.members)
        return is_coming

    def _leave_redirect(self, response: ReceivedResponse) -> None:
        """Let the library follow a redirect to another origin without the key, the body and the headers of the call."""
        url, headers = str(self._first.url), self._first.headers
        address = response.find_location(url)
        if response.status not in _REDIRECTS or find_origin(address) == find_origin(url):
            return
        if response.status > 303 or self._first.method != "POST":
            raise errors.OtherOrigin(f"{url} redirects to {address}. The call was not sent there.", key=self.key)
        for name in [each for each in headers if each.lower() not in _HARMLESS]:
            del headers[name]

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
