"""Request parts to a text that stands for what the request means."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from hmac import new as keyed
from typing import Final, Protocol, TypeAlias

from django_idempotency.core.canonical import by_name, canonical_form, canonical_json, encoded
from django_idempotency.core.headers import header_names
from django_idempotency.exceptions import UnreadableFingerprint

VERSION: Final = "v1"
SEALED: Final = re.compile(r"v1:(?P<secret_id>[\w-]{0,16}):(?P<raw>[\w-]{43}):(?P<canonical>[\w-]{43}|)", re.ASCII)
SECRET_ID: Final = re.compile(r"[\w-]{1,16}", re.ASCII)

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = re.compile(r"application/json|[^/]+/[^/]+\+json")
CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^\s;"]*)', re.IGNORECASE)

# One thing that counts: a word for what it is, then its values. Hashed with its count and lengths, so no two lists of
# pieces are the same bytes.
Piece: TypeAlias = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart body; its content is read anew for each comparison."""

    name: str
    filename: str | None
    content_type: str
    content: bytes | Iterable[bytes]

    def __post_init__(self) -> None:
        if isinstance(self.content, Iterator):
            raise ValueError("content must be bytes or something that can be read twice; an iterator cannot.")


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request without its framework."""

    method: str
    path: str  # as resolved: two objects behind one route are two paths
    query: str  # as sent
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)  # lower-case names; the rule's and content-encoding
    parts: Sequence[Part] | None = None  # a multipart body taken apart; `body` and the boundary then mean nothing


@dataclass(frozen=True, slots=True)
class FingerprintRule:
    """Which parts of a request count. Method and path always do; the query does unless `custom` decides."""

    headers: tuple[str, ...] = ()  # these count too
    fields: tuple[str, ...] | None = (
        None  # these alone count: of a JSON object (dotted paths), a form, a multipart body
    )
    canonical_limit: int = 65536  # a larger body is compared byte for byte only
    body: bool = True  # False: neither the body nor its type counts
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False, hash=False)  # HMAC keys by id, old ones too
    secret_id: str | None = None  # the one that new fingerprints use; None makes them plain SHA-256
    custom: Callable[[RequestParts], bytes | str] | None = None  # its value stands for all but method and path

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", header_names("headers", self.headers))
        object.__setattr__(self, "fields", _field_names(self.fields))
        object.__setattr__(self, "secrets", _checked_secrets(self.secrets))
        if self.canonical_limit < 0:
            raise ValueError(f"canonical_limit must be at least 0; it is {self.canonical_limit!r}.")
        if self.secret_id is not None and self.secret_id not in self.secrets:
            raise ValueError(f"secret_id must be one of the ids in secrets; it is {self.secret_id!r}.")
        if self.fields is not None and not self.body:
            raise ValueError("fields says nothing where body=False leaves the body out.")
        if self.custom is not None and not callable(self.custom):
            raise ValueError(f"custom must be a callable or None; it is {self.custom!r}.")
        if self.custom is not None and (self.headers or self.fields is not None or not self.body):
            raise ValueError("custom decides alone what counts: leave headers, fields and body out.")


def seal(parts: RequestParts, rule: FingerprintRule) -> str:
    """The text to store: version, key id, raw digest and, where the body has one, canonical digest."""
    secret = None if rule.secret_id is None else rule.secrets[rule.secret_id]
    entries = _entries(parts, rule)
    canonical = _canonical(parts, rule, entries)
    raw_digest = _digest(secret, _raw(parts, rule, entries))
    canonical_digest = "" if canonical is None else _digest(secret, canonical)
    return ":".join((VERSION, rule.secret_id or "", raw_digest, canonical_digest))


def same(stored: str, fresh: str) -> bool:
    """Whether two texts sealed under one version and key id stand for one request; False for any other two."""
    one, other = SEALED.fullmatch(stored), SEALED.fullmatch(fresh)
    if one is None or other is None or one["secret_id"] != other["secret_id"]:
        return False
    if compare_digest(one["raw"], other["raw"]):
        return True
    return one["canonical"] != "" and compare_digest(one["canonical"], other["canonical"])


def agrees(stored: str, parts: RequestParts, rule: FingerprintRule) -> bool:
    """Whether the request is the one that was sealed, under whichever of the rule's keys that was.

    UnreadableFingerprint where nobody can tell: a client that is told "another request" would take a new key, and the
    effect would happen twice.
    """
    sealed = SEALED.fullmatch(stored)
    if sealed is None:
        raise UnreadableFingerprint
    secret = rule.secrets.get(sealed["secret_id"])
    if secret is None and sealed["secret_id"]:
        raise UnreadableFingerprint(
            f"The stored fingerprint needs the key {sealed['secret_id']!r}: keep it in secrets."
        )
    entries = _entries(parts, rule)
    if compare_digest(sealed["raw"], _digest(secret, _raw(parts, rule, entries))):
        return True
    canonical = _canonical(parts, rule, entries) if sealed["canonical"] else None
    return canonical is not None and compare_digest(sealed["canonical"], _digest(secret, canonical))


class _Sink(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


def _digest(secret: bytes | None, pieces: Iterable[Piece]) -> str:
    sink: _Sink = sha256() if secret is None else keyed(secret, digestmod=sha256)
    for piece in pieces:
        sink.update(len(piece).to_bytes(8, "big"))
        for value in piece:
            sink.update(len(value).to_bytes(8, "big"))
            sink.update(value)
    return urlsafe_b64encode(sink.digest()).rstrip(b"=").decode("ascii")


def _head(parts: RequestParts, rule: FingerprintRule) -> list[Piece]:
    """What counts besides the body's content."""
    always: list[Piece] = [(b"method", encoded(parts.method)), (b"path", encoded(parts.path))]
    if rule.custom is not None:
        value = rule.custom(parts)
        return [*always, (b"custom", encoded(value) if isinstance(value, str) else value)]
    named = [(b"header", encoded(name), *_present(parts.headers.get(name))) for name in rule.headers]
    kind = [(b"type", *map(encoded, _media(parts.content_type)), encoded(_coding(parts)))] if rule.body else []
    return [*always, (b"query", encoded(parts.query)), *named, *kind]


def _raw(parts: RequestParts, rule: FingerprintRule, entries: list[Piece] | None) -> list[Piece]:
    head = _head(parts, rule)
    if rule.custom is not None or not rule.body:
        return head
    return [*head, *([(b"body", parts.body)] if entries is None else ((b"part", *entry) for entry in entries))]


def _canonical(parts: RequestParts, rule: FingerprintRule, entries: list[Piece] | None) -> list[Piece] | None:
    meaning = _meaning(parts, rule, entries) if rule.custom is None and rule.body else []
    return [*_head(parts, rule), (b"fields", *map(encoded, rule.fields or ())), *meaning] if meaning else None


def _meaning(parts: RequestParts, rule: FingerprintRule, entries: list[Piece] | None) -> list[Piece]:
    """What the body says, whichever way it says it; nothing where only its bytes can be compared."""
    if entries is not None:
        return [(b"part", *entry) for entry in by_name(entries, rule.fields)]
    media, charset = _media(parts.content_type)
    if charset or _coding(parts) or len(parts.body) > rule.canonical_limit:
        return []
    if media == FORM:
        return [(b"pair", *pair) for pair in canonical_form(parts.body, rule.fields)]
    text = canonical_json(parts.body, rule.fields) if JSON.fullmatch(media) else None
    return [] if text is None else [(b"json", text)]


def _entries(parts: RequestParts, rule: FingerprintRule) -> list[Piece] | None:
    """The parts of a multipart body, name first, contents streamed into a digest; None for any other body."""
    if parts.parts is None or rule.custom is not None or not rule.body:
        return None
    return [_entry(part) for part in parts.parts]


def _entry(part: Part) -> Piece:
    media, charset = map(encoded, _media(part.content_type))
    return encoded(part.name), media, charset, _content_digest(part.content), *_present(part.filename)


def _content_digest(content: bytes | Iterable[bytes]) -> bytes:
    digest = sha256()
    for chunk in (content,) if isinstance(content, bytes) else content:
        digest.update(chunk)
    return digest.digest()


def _media(content_type: str) -> tuple[str, str]:
    """Media type without parameters, and the charset unless it is UTF-8, which is what no charset means."""
    charsets = (charset.lower() for charset in CHARSET.findall(content_type))
    unusual = ",".join(charset for charset in charsets if charset not in ("", "utf-8", "utf8"))
    return content_type.partition(";")[0].strip().lower(), unusual


def _coding(parts: RequestParts) -> str:
    coding = parts.headers.get("content-encoding", "").strip().lower()
    return "" if coding == "identity" else coding


def _present(value: str | None) -> tuple[bytes, ...]:
    """No value at all for None: an absent header or file name is not an empty one."""
    return () if value is None else (encoded(value),)


def _field_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    fields = () if isinstance(names, str) else tuple(names)
    if not fields or not all(isinstance(name, str) and name for name in fields):
        raise ValueError(f"fields must be a collection of names, at least one, or None; it is {names!r}.")
    return fields


def _checked_secrets(secrets: Mapping[str, bytes]) -> dict[str, bytes]:
    for secret_id, secret in secrets.items():
        if not SECRET_ID.fullmatch(secret_id):
            raise ValueError(f"secrets: an id has 1 to 16 letters, digits, '_' or '-'; this one is {secret_id!r}.")
        if not isinstance(secret, bytes) or len(secret) < 16:
            raise ValueError(f"secrets[{secret_id!r}] must be at least 16 bytes.")
    return dict(secrets)
