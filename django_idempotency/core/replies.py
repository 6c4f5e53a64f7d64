"""The stored response, and which parts of a response may be stored."""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from django_idempotency.core.headers import lower_header_names
from django_idempotency.exceptions import UnreadableReply

Headers: TypeAlias = tuple[tuple[str, str], ...]

# A strict choice for `ReplyRule.headers`: headers that describe a resource or a body, and nothing of the project's own.
STANDARD_HEADERS: Final = frozenset(
    {
        "accept-patch",
        "allow",
        "cache-control",
        "content-digest",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "deprecation",
        "etag",
        "last-modified",
        "link",
        "location",
        "preference-applied",
        "repr-digest",
        "retry-after",
        "sunset",
        "vary",
    }
)
# Headers that belong to one caller, one connection or one moment.
NEVER_STORED: Final = frozenset(
    {
        "age",
        "authentication-info",
        "authorization",
        "clear-site-data",
        "connection",
        "content-length",
        "cookie",
        "date",
        "keep-alive",
        "server",
        "set-cookie",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "www-authenticate",
    }
)
NEVER_STORED_KINDS: Final = re.compile(r"proxy-|.*[cx]srf")
# Stored only if `extra_headers` names them: what sounds like a secret, and what describes one moment or one request.
_LOOKS_PRIVATE: Final = re.compile(
    r".*(auth|cookie|credential|jwt|nonce|passw|secret|session|signature|token)|.*(^|[-_])(otp|(api-?)?keys?)($|[-_])"
    r"|(x-)?rate-?limit|server-timing|trace(parent|state)|x-(amzn?-|b3|correlation-id|request-id|runtime)"
)
_CONTROL: Final = re.compile(r"[ \t]*[\x00-\x08\x0a-\x1f\x7f]+[ \t]*")
DEFAULT_MAX_BODY: Final = 1024 * 1024
NO_BODY: Final = frozenset({204, 205, 304})  # a client would take the body for the start of the next response
OF_THE_BYTES: Final = frozenset({"content-digest", "content-encoding", "repr-digest"})


@dataclass(frozen=True, slots=True)
class Reply:
    """A stored response: status, headers in their order, and the body's bytes."""

    status: int
    headers: Headers
    body: bytes | None  # None: the response had one, and it was not stored; b"": it had none
    schema_version: int = 1

    @property
    def omitted(self) -> bool:
        return self.body is None

    @property
    def lost(self) -> bool:
        """True if it was a success whose body is missing: sent without it, it would look like another response."""
        return self.body is None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """Which parts of an endpoint's responses are stored."""

    headers: Collection[str] | None = None  # the only headers stored; None: those the view set, except private ones
    extra_headers: Collection[str] = ()  # stored too, although they are not in `headers`, or look private
    max_body: int | None = None  # bytes; a larger body is omitted and marked. None: the setting MAX_BODY, or 1 MiB
    schema_version: int = 1  # raise it when the endpoint's responses change shape
    body: bool = True  # False: no body is stored

    def __post_init__(self) -> None:
        extra = frozenset(_check_storable("extra_headers", self.extra_headers))
        if self.headers is not None:
            object.__setattr__(self, "headers", frozenset(_check_storable("headers", self.headers)) | extra)
            extra = frozenset()
        object.__setattr__(self, "extra_headers", extra)
        if self.max_body is not None and self.max_body < 0:
            raise ValueError(f"max_body must be at least 0, or None; it is {self.max_body!r}.")
        if self.schema_version < 1:
            raise ValueError(f"schema_version must be at least 1; it is {self.schema_version!r}.")

    def stores(self, name: str) -> bool:
        """True if a header of this name, in lower case, is stored."""
        if self.headers is not None:
            return name in self.headers
        return name in self.extra_headers or not (is_private(name) or _LOOKS_PRIVATE.match(name))

    @property
    def longest_body(self) -> int:
        return DEFAULT_MAX_BODY if self.max_body is None else self.max_body


def _check_storable(argument: str, names: Collection[str]) -> tuple[str, ...]:
    lowered = lower_header_names(argument, names)
    private = sorted(filter(is_private, lowered))
    if private:
        raise ValueError(
            f"{argument} must not contain {', '.join(private)}: headers of one caller or connection are never replayed."
        )
    return lowered


def is_private(name: str) -> bool:
    """True if a header of this name, in lower case, is never stored."""
    return name in NEVER_STORED or NEVER_STORED_KINDS.match(name) is not None


def unfold(value: str) -> str:
    """Return a header's value with a space for each line break or control character, which HTTP does not allow."""
    return value if value.isprintable() else _CONTROL.sub(" ", value)


def capture(status: int, headers: Iterable[tuple[str, str]], body: bytes | None, rule: ReplyRule) -> Reply:
    """Return what the rule stores of a response; pass body=None if its body cannot be stored."""
    kept = body if not body or (rule.body and len(body) <= rule.longest_body) else None
    left_out = OF_THE_BYTES if kept is None else frozenset[str]()
    stored = [pair for pair in headers if pair[0].lower() not in left_out and rule.stores(pair[0].lower())]
    return Reply(status, tuple((name, unfold(value)) for name, value in stored), kept, rule.schema_version)


def json_reply(status: int, data: Any, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """Make a JSON response to store, for reconcilers, webhooks and operations."""
    return Reply(status, (("Content-Type", "application/json"), *headers), json.dumps(data).encode())


def dump_headers(reply: Reply) -> str:
    """Return the headers as ASCII text, in order and with repetitions, without private ones.

    A reply that the project made itself has not passed any rule.
    """
    kept = [pair for pair in reply.headers if not is_private(pair[0].lower())]
    return json.dumps(kept, separators=(",", ":"))


def load_headers(text: str) -> Headers:
    """Return the headers from a text that `dump_headers` wrote."""
    try:
        pairs = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableReply("The stored headers are not JSON; the response is withheld.") from None
    if not isinstance(pairs, list) or not all(_is_header(pair) for pair in pairs):
        raise UnreadableReply("The stored headers are not pairs of texts; the response is withheld.")
    return tuple((name, value) for name, value in pairs)


def _is_header(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
