"""One call from its key to its outcome: when it is sent again, and how long to wait. No HTTP library is needed."""

import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

from django_idempotency.client.calls import ReceivedResponse
from django_idempotency.client.errors import ChangedRequest, InProgress, OutcomeUnknown, read_error
from django_idempotency.client.outbox import current_block

R = TypeVar("R")
_KEYED: Final = ("POST", "PATCH")
_RETRIED: Final = {425, 429, 502, 503, 504}
_REMEMBERED: Final = 10_000  # keys
_OF_THE_BODY: Final = ("content-type", "content-length", "content-encoding", "transfer-encoding")


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
    progress: Callable[[dict[str, Any]], object] = lambda _status: None  # gets the JSON of each 202 meanwhile

    def take(self, request: Any) -> bool:
        """Return True if the request is a call: its method gets a key, or it has a key already."""
        return request.method in _KEYED or self.header in request.headers


@dataclass
class KeyMemory:
    """What was sent with which key by one transport, so that a changed body is found before it is sent."""

    rules: CallRules
    digests: OrderedDict[str, bytes] = field(default_factory=OrderedDict)

    def check(self, key: str, body: bytes) -> None:
        digest = sha256(body).digest()
        if self.digests.setdefault(key, digest) != digest:
            raise ChangedRequest(key=key)
        if len(self.digests) > _REMEMBERED:
            self.digests.popitem(last=False)


class Conversation:
    """A call with its key: what to send, and after each try how long to wait before the next one."""

    def __init__(self, memory: KeyMemory, request: Any, body: bytes) -> None:
        self.rules, self.request, self._memory, self._body = memory.rules, request, memory, body
        self.poll = ""  # the address of accepted work: ask there instead of sending the request again
        self.block = current_block() if request.method in _KEYED else None
        self._ends = {"deadline": time.monotonic() + self.rules.deadline}  # the rule: when its time is over
        self._tries = 0

    def begin(self) -> ReceivedResponse | None:
        """Give the request its key. Return the response that the call has already, if it has."""
        headers, header, kept = self.request.headers, self.rules.header, None
        given = headers.get(header)
        self.key = f'"{uuid4()}"' if given is None else given
        if self.block is not None:
            call = self.block.enter(self.request, self._body, self.key, is_given=given is not None)
            self.key, kept = call.key, call.response
        elif given is not None:
            self._memory.check(given, self._body)
        headers[header] = self.key
        return kept

    def after_failure(self, error: Exception) -> float:
        """Return how long to wait after a network error; raise it if the deadline does not allow another try."""
        pause = self._pause("deadline", 0)
        if pause is None:
            error.add_note(f"It is not known whether the request took effect. Its key was {self.key}: use it again.")
            raise error
        return pause

    def after(self, response: ReceivedResponse) -> float | None:
        """Return how long to wait before the next try; None if this is the response. Raise what it says went wrong."""
        error = read_error(response, self.key)
        rule = None
        if response.is_replay:
            pass  # it never changes
        elif isinstance(error, OutcomeUnknown):
            rule = "unknown"
        elif self.rules.wait and (response.is_accepted or (self.poll and response.status == 202)):
            rule = "wait_for"
            self._follow(response)
        elif isinstance(error, InProgress) or response.status in _RETRIED:
            rule = "deadline"
        pause = self._pause(rule, response.retry_after) if rule else None
        if pause is None and error is not None:
            raise error
        return pause

    def finish(self, response: ReceivedResponse) -> ReceivedResponse | None:
        """Keep the outcome of the call. Return the one that was kept before, if it is another."""
        return self.block.finish(response) if self.block is not None and response.is_outcome else None

    def poll_headers(self) -> dict[str, str]:
        """Return the headers for the address of accepted work: those of the request, without its body and key."""
        left_out = (*_OF_THE_BODY, self.rules.header.lower())
        return {name: value for name, value in self.request.headers.items() if name.lower() not in left_out}

    def _follow(self, response: ReceivedResponse) -> None:
        """Note where to ask for accepted work. Credentials are sent to the same origin only."""
        url = str(self.request.url)
        if response.is_accepted and not self.poll:
            address = urljoin(url, response.headers.get("location", url))
            self.poll = address if urlsplit(address)[:2] == urlsplit(url)[:2] and address != url else ""
        self.rules.progress(response.members)

    def _pause(self, rule: str, least: float) -> float | None:
        """Return a pause with full jitter, at least as long as the server asked for; None if it ends too late."""
        now = time.monotonic()
        end = self._ends.setdefault(rule, now + getattr(self.rules, rule))
        if rule == "deadline":  # that of accepted work, once there is any
            end = self._ends.get("wait_for", end)
        most = self.rules.backoff if least else self.rules.backoff * 2 ** min(self._tries, 30)
        self._tries += 1
        pause = least + random.uniform(0, min(most, self.rules.longest))  # noqa: S311 - it keeps no secret
        return pause if now + pause <= end else None


async def sleep_here(seconds: float) -> None:
    time.sleep(seconds)


async def call_here(function: Callable[..., R], *arguments: Any) -> R:
    return function(*arguments)


async def converse(
    call: Conversation,
    send: Callable[[Conversation], Awaitable[tuple[R, ReceivedResponse]]],
    rebuild: Callable[[ReceivedResponse], R],
    network_errors: tuple[type[Exception], ...],
    sleep: Callable[[float], Awaitable[None]] = sleep_here,
    run: Callable[..., Awaitable[Any]] = call_here,
) -> R:
    """Send until there is a response. Return it as the library's own, or rebuild the one that was kept before."""
    kept = await run(call.begin)
    while kept is None:
        try:
            response, received = await send(call)
        except network_errors as error:
            pause: float | None = call.after_failure(error)
        else:
            pause = call.after(received)
        if pause is None:
            kept = await run(call.finish, received)
            return response if kept is None else rebuild(kept)
        await sleep(pause)
    return rebuild(kept)


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that blocks instead of waiting, as `converse` does by default."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise RuntimeError("This coroutine has to block.")
