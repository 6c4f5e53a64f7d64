"""One call from its key to its outcome: when it is sent again, and how long to wait. No HTTP library is needed."""

import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import ChangedRequest, InProgress, OutcomeUnknown, read_error
from django_idempotency.client.outbox import current_block

R = TypeVar("R")
_RETRIED: Final = {425, 429, 502, 503, 504}
_REMEMBERED: Final = 10_000  # keys
_OF_THE_BODY: Final = ("content-type", "content-length", "content-encoding", "transfer-encoding")


def _ignore(_progress: dict[str, Any]) -> None:
    pass


@dataclass(frozen=True)
class CallRules:
    """How a transport treats calls. All times are in seconds."""

    header: str = "Idempotency-Key"
    methods: Collection[str] = ("POST", "PATCH")  # get a key; other requests are sent again only if they have one
    deadline: float = 60  # no try begins later than this after the first
    unknown: float = 30  # how long an unknown outcome is asked about
    backoff: float = 0.5  # the longest pause before the second try; it doubles with each try
    longest: float = 20  # the longest pause, unless Retry-After asks for more
    wait: bool = False  # follow a 202 to the response of the work
    wait_for: float = 3600  # how long
    progress: Callable[[dict[str, Any]], object] = _ignore  # gets the JSON of each 202 meanwhile


class KeyMemory:
    """What was sent with which key, so that a changed body is found before it is sent."""

    def __init__(self) -> None:
        self._digests: OrderedDict[str, bytes] = OrderedDict()

    def check(self, key: str, body: bytes) -> None:
        digest = sha256(body).digest()
        if self._digests.setdefault(key, digest) != digest:
            raise ChangedRequest(key=key)
        if len(self._digests) > _REMEMBERED:
            self._digests.popitem(last=False)


class Conversation:
    """A call with its key: what to send, and after each try how long to wait before the next one."""

    def __init__(
        self,
        rules: CallRules,
        memory: KeyMemory,
        method: str,
        url: str,
        headers: MutableMapping[str, str],
        body: bytes,
    ) -> None:
        self.rules, self.url = rules, url
        self.poll = ""  # the address of accepted work: ask there instead of sending the request again
        self.stored: ReceivedResponse | None = None
        self._block = current_block() if method in rules.methods else None
        is_given = rules.header in headers
        self.key = headers[rules.header] if is_given else f'"{uuid4()}"'
        if self._block is not None:
            call = self._block.enter(self.key, is_given, method, url, headers, body)
            self.key, self.stored = call.key, call.response
        elif is_given and method in rules.methods:
            memory.check(self.key, body)
        headers[rules.header] = self.key
        self._end = time.monotonic() + rules.deadline
        self._unknown_end = 0.0
        self._tries = 0

    def after_failure(self, error: Exception) -> float:
        """Return how long to wait after a network error; raise it if the deadline does not allow another try."""
        pause = self._pause(0, self._end)
        if pause is None:
            error.add_note(f"It is not known whether the request took effect. Its key was {self.key}: use it again.")
            raise error
        return pause

    def after(self, response: ReceivedResponse) -> float | None:
        """Return how long to wait before the next try; None if this is the response. Raise what it says went wrong."""
        error = read_error(response, self.key)
        end = None if response.is_replay else self._find_end(error, response)
        pause = None if end is None else self._pause(response.retry_after, end)
        if pause is None and error is not None:
            raise error
        return pause

    def finish(self, response: ReceivedResponse) -> ReceivedResponse:
        """Keep the outcome of the call. Return the one that was kept first."""
        return self._block.finish(response) if self._block is not None and response.is_outcome else response

    def poll_headers(self, headers: MutableMapping[str, str]) -> dict[str, str]:
        """Return the headers for the address of accepted work: those of the request, without its body and key."""
        left_out = (*_OF_THE_BODY, self.rules.header.lower())
        return {name: value for name, value in headers.items() if name.lower() not in left_out}

    def _find_end(self, error: Exception | None, response: ReceivedResponse) -> float | None:
        """Return until when to send again after this response; None if it is not sent again."""
        if isinstance(error, OutcomeUnknown):
            self._unknown_end = self._unknown_end or time.monotonic() + self.rules.unknown
            return self._unknown_end
        if self.rules.wait and (response.is_accepted or (self.poll and response.status == 202)):
            self._follow(response)
            return self._end
        return self._end if isinstance(error, InProgress) or response.status in _RETRIED else None

    def _follow(self, response: ReceivedResponse) -> None:
        """Note where to ask for accepted work. Credentials are sent to the same origin only."""
        if response.is_accepted and not self.poll:
            self._end = time.monotonic() + self.rules.wait_for
            address = urljoin(self.url, response.headers.get("location", self.url))
            same = urlsplit(address)[:2] == urlsplit(self.url)[:2]
            self.poll = address if same and address != self.url else ""
        self.rules.progress(response.members)

    def _pause(self, least: float, end: float) -> float | None:
        """Return a pause with full jitter, at least as long as the server asked for; None if it ends too late."""
        self._tries += 1
        most = self.rules.backoff if least else self.rules.backoff * 2 ** min(self._tries - 1, 30)
        pause = least + random.uniform(0, min(most, self.rules.longest))  # noqa: S311 - it keeps no secret
        return pause if time.monotonic() + pause <= end else None


async def converse(
    begin: Callable[[], Conversation],
    send: Callable[[Conversation], Awaitable[tuple[R, ReceivedResponse]]],
    network_errors: tuple[type[Exception], ...],
    sleep: Callable[[float], Awaitable[None]],
    run: Callable[..., Awaitable[Any]],
) -> tuple[R | None, ReceivedResponse]:
    """Send until there is a response. Return it as the library's own, or None if it was kept before."""
    call = await run(begin)
    while call.stored is None:
        try:
            response, received = await send(call)
        except network_errors as error:
            pause = call.after_failure(error)
        else:
            pause = call.after(received)
            if pause is None:
                kept = await run(call.finish, received)
                return (response if kept in (received, received.without_transport()) else None), kept
        await sleep(pause)
    return None, call.stored


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that blocks instead of waiting, such as `converse` with the two functions below."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise RuntimeError("This coroutine has to block.")


async def sleep_here(seconds: float) -> None:
    time.sleep(seconds)


async def call_here(function: Callable[..., R], *arguments: Any) -> R:
    return function(*arguments)
