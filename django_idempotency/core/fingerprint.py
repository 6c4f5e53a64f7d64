"""Turn a request into the short text that is stored. `comparison.py` compares later requests with it."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from hmac import new as new_hmac
from itertools import chain
from struct import Struct
from typing import Any, Final, TypeAlias

from django_idempotency.core.canonical import canonicalize_form, canonicalize_json, encode, select_by_name
from django_idempotency.core.headers import lower_header_names
from django_idempotency.core.validation import discard_awaitable, require_function

URLENCODED: Final = "application/x-www-form-urlencoded"
DEFAULT_CANONICAL_LIMIT: Final = 65536

PART_DIGEST: Final = 2  # characters, which are 12 bits
_SECRET_ID: Final = re.compile(r"[\w-]{1,16}", re.ASCII)
_JSON_TYPE: Final = re.compile(r"application/json|[^/]+/[^/]+\+json")
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^\s;"]*)', re.IGNORECASE)

_pack_length: Final = Struct(">Q").pack

# One property of a request that is compared: a word for what it is, then its values. The number of values and the
# length of each are hashed too, so no two lists of pieces give the same bytes.
Piece: TypeAlias = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart body. Its content is read again for each comparison."""

    name: str
    filename: str | None
    content_type: str
    content: bytes | Iterable[bytes]

    def __post_init__(self) -> None:
        if isinstance(self.content, Iterator):
            raise ValueError("content must be bytes or an iterable that can be read twice; it is an iterator.")


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request without its framework."""

    method: str
    path: str  # as resolved: two objects behind one route are two paths
    query: str  # as sent
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)  # lower-case names; the rule's and content-encoding
    parts: Sequence[Part] | None = None  # a parsed multipart body; `body` and the boundary are ignored then


@dataclass(frozen=True, slots=True)
class FingerprintRule:
    """Which properties of a request are compared. Method and path always are, and so is the query without `custom`."""

    headers: tuple[str, ...] = ()  # these are compared too
    fields: tuple[str, ...] | None = None  # the only ones compared of a JSON object (dotted paths), a form, multipart
    ignored: tuple[str, ...] = ()  # all but these are compared, such as times and signatures; the same three
    canonical_limit: int | None = None  # larger bodies are compared byte for byte; None: CANONICAL_LIMIT, or 64 KiB
    body: bool = True  # False: neither the body nor its type is compared
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False, hash=False)  # HMAC keys by id, old ones too
    secret_id: str | None = None  # the secret for new fingerprints; None makes them plain SHA-256
    custom: Callable[[RequestParts], bytes | str] | None = None  # its result replaces all but method and path

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", lower_header_names("headers", self.headers))
        object.__setattr__(self, "fields", None if self.fields is None else _check_fields("fields", self.fields))
        object.__setattr__(self, "ignored", _check_fields("ignored", self.ignored) if self.ignored else ())
        object.__setattr__(self, "secrets", check_secrets(self.secrets))
        if self.canonical_limit is not None and self.canonical_limit < 0:
            raise ValueError(f"canonical_limit must be at least 0, or None; it is {self.canonical_limit!r}.")
        if self.secret_id is not None and self.secret_id not in self.secrets:
            raise ValueError(f"secret_id must be one of the ids in secrets; it is {self.secret_id!r}.")
        if self.fields is not None and self.ignored:
            raise ValueError("fields names the only fields that are compared, so ignored has no effect: remove it.")
        for name in ("fields", "ignored"):
            if getattr(self, name) and not self.body:
                raise ValueError(f"{name} has no effect with body=False, which ignores the body: remove one of them.")
        require_function("custom", self.custom)
        if self.custom is not None and (self.headers or self.fields is not None or self.ignored or not self.body):
            raise ValueError("custom replaces headers, fields, ignored and body: remove them.")

    @property
    def compares_body(self) -> bool:
        return self.body and self.custom is None

    @property
    def longest_canonical(self) -> int:
        return DEFAULT_CANONICAL_LIMIT if self.canonical_limit is None else self.canonical_limit


def seal(request: RequestParts, rule: FingerprintRule) -> str:
    """Return the text to store: version, secret id, raw digest, canonical digest if the body has one, and parts.

    Each digest keeps 132 bits. Finding a second request with the digest of a given one takes 2^132 tries. A client that
    may choose both needs 2^66, and gains nothing: the second request is not run and gets the first one's response.
    """
    secret = None if rule.secret_id is None else rule.secrets[rule.secret_id]
    digests = Digests(request, rule, secret)
    raw, canonical = digests.as_sent(), digests.in_canonical_form()
    return f"v3:{rule.secret_id or ''}:{raw}{canonical or ''}{digests.by_part()}"


def _serialize(pieces: Iterable[Piece]) -> list[bytes]:
    chunks: list[bytes] = []
    for piece in pieces:
        chunks += (_pack_length(len(piece)),)
        for value in piece:
            chunks += (_pack_length(len(value)), value)
    return chunks


class Digests:
    """The pieces of one request that one rule compares: two requests with equal pieces are the same request.

    Both digests begin with the same pieces, which are hashed once.
    """

    def __init__(self, request: RequestParts, rule: FingerprintRule, secret: bytes | None) -> None:
        self._request = request
        self._rule = rule
        self._start: Any = sha256() if secret is None else new_hmac(secret, digestmod=sha256)
        self._pieces = _head(request, rule)
        self._head = self._start.copy()
        self._head.update(b"".join(_serialize(self._pieces)))
        self._parts: list[Piece] | None = None
        self._compares_body = rule.compares_body
        if self._compares_body and request.parts is not None:
            self._parts = [_describe_part(part) for part in request.parts]

    def as_sent(self) -> str:
        """Return the digest with the body byte for byte, or with the parts of a multipart body in their order."""
        if not self._compares_body:
            return self._digest([])
        if self._parts is not None:
            return self._digest((b"part", *part) for part in self._parts)
        return self._digest([(b"body", self._request.body)])

    def in_canonical_form(self) -> str | None:
        """Return the digest with the body by its meaning; None if only its bytes can be compared."""
        rule, body = self._rule, self._canonical_body() if self._compares_body else []
        ignored: list[Piece] = [(b"ignored", *map(encode, rule.ignored))] if rule.ignored else []
        return self._digest([(b"fields", *map(encode, rule.fields or ())), *ignored, *body]) if body else None

    def by_part(self) -> str:
        """Return a short digest of the query, of the content type and, if headers are compared, of these."""
        if self._rule.custom is not None:
            return ""
        content_type = 3 + len(self._rule.headers)  # after method, path, query and headers
        groups = [self._pieces[2:3], self._pieces[content_type:], self._pieces[3:content_type]]
        parts = ""
        for pieces in groups if self._rule.headers else groups[:2]:
            hashed = self._start.copy()
            hashed.update(b"\0".join(chain.from_iterable(pieces)))
            parts += urlsafe_b64encode(hashed.digest())[:PART_DIGEST].decode("ascii")
        return parts

    def _digest(self, pieces: Iterable[Piece]) -> str:
        hashed = self._head.copy()
        for chunk in _serialize(pieces):
            hashed.update(chunk)
        return urlsafe_b64encode(hashed.digest())[:22].decode("ascii")

    def _canonical_body(self) -> list[Piece]:
        rule = self._rule
        if self._parts is not None:
            return [(b"part", *part) for part in select_by_name(self._parts, rule.fields, rule.ignored)]
        body = self._request.body
        media_type, unusual_charset = _parse_content_type(self._request.content_type)
        if unusual_charset or _content_coding(self._request) or len(body) > rule.longest_canonical:
            return []
        if media_type == URLENCODED:
            return [(b"pair", *pair) for pair in canonicalize_form(body, rule.fields, rule.ignored) or ()]
        text = canonicalize_json(body, rule.fields, rule.ignored) if _JSON_TYPE.fullmatch(media_type) else None
        return [] if text is None else [(b"json", text)]


def _head(request: RequestParts, rule: FingerprintRule) -> list[Piece]:
    """Return the pieces that precede the body's content."""
    pieces: list[Piece] = [(b"method", encode(request.method)), (b"path", encode(request.path))]
    if rule.custom is not None:
        result = rule.custom(request)
        if discard_awaitable(result) or not isinstance(result, bytes | str):
            raise TypeError(f"custom must return bytes or str; it returned a {type(result).__name__}.")
        return [*pieces, (b"custom", encode(result) if isinstance(result, str) else result)]
    pieces.append((b"query", encode(request.query)))
    for name in rule.headers:
        pieces.append((b"header", encode(name), *_encode_if_present(request.headers.get(name))))
    if rule.body:
        content_type = _parse_content_type(request.content_type)
        pieces.append((b"type", *map(encode, content_type), encode(_content_coding(request))))
    return pieces


def _describe_part(part: Part) -> Piece:
    """Return the part's properties, its name first; the content is streamed into a digest."""
    content_type = map(encode, _parse_content_type(part.content_type))
    return encode(part.name), *content_type, _digest_content(part.content), *_encode_if_present(part.filename)


def _digest_content(content: bytes | Iterable[bytes]) -> bytes:
    digest = sha256()
    for chunk in (content,) if isinstance(content, bytes) else content:
        digest.update(chunk)
    return digest.digest()


@lru_cache(maxsize=64)
def _parse_content_type(content_type: str) -> tuple[str, str]:
    """Return the media type without parameters, and the charset; empty for UTF-8, which is also the default."""
    charsets = (charset.lower() for charset in _CHARSET.findall(content_type))
    unusual = ",".join(charset for charset in charsets if charset not in ("", "utf-8", "utf8"))
    return content_type.partition(";")[0].strip().lower(), unusual


def _content_coding(request: RequestParts) -> str:
    coding = request.headers.get("content-encoding", "").strip().lower()
    return "" if coding == "identity" else coding


def _encode_if_present(value: str | None) -> tuple[bytes, ...]:
    """Return no value at all for None: an absent header or file name differs from an empty one."""
    return () if value is None else (encode(value),)


def _check_fields(argument: str, names: Iterable[str]) -> tuple[str, ...]:
    fields = () if isinstance(names, str) else tuple(names)
    if not fields or not all(isinstance(name, str) and name for name in fields):
        nothing = "None" if argument == "fields" else "empty"
        raise ValueError(f"{argument} must be a collection of names, at least one, or {nothing}; it is {names!r}.")
    return fields


def check_secrets(secrets: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a copy of secrets by id; raise ValueError if an id or a secret cannot be used."""
    for secret_id, secret in secrets.items():
        if not _SECRET_ID.fullmatch(secret_id):
            raise ValueError(f"secrets: an id has 1 to 16 letters, digits, '_' or '-'; this one is {secret_id!r}.")
        if not isinstance(secret, bytes) or len(secret) < 16:
            raise ValueError(f"secrets[{secret_id!r}] must be at least 16 bytes.")
    return dict(secrets)
