"""Turn a request into a short text that is stored, and compare later requests with it."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from hmac import new as new_hmac
from itertools import chain
from struct import Struct
from typing import Any, Final, TypeAlias

from django_idempotency.core.canonical import canonicalize_form, canonicalize_json, encode, select_by_name
from django_idempotency.core.headers import lower_header_names
from django_idempotency.core.validation import discard_awaitable, require_function
from django_idempotency.exceptions import UnreadableFingerprint

URLENCODED: Final = "application/x-www-form-urlencoded"
DEFAULT_CANONICAL_LIMIT: Final = 65536

_VERSION: Final = "v3"
_KEPT: Final = r"[\w-]{22}"  # characters of a digest, which are 132 bits; version 1 kept all 43
_STORED: Final = re.compile(
    rf"v3:(?P<secret_id>[\w-]{{0,16}}):(?P<raw>{_KEPT})(?P<canonical>{_KEPT})?(?P<parts>[\w-]{{4}}|[\w-]{{6}})?", re.A
)
_OLDER: Final = re.compile(
    rf"v[12]:(?P<secret_id>[\w-]{{0,16}}):(?P<raw>{_KEPT})(?:[\w-]{{21}})?:"
    rf"(?:(?P<canonical>{_KEPT})(?:[\w-]{{21}})?)?(?P<parts>)",
    re.A,
)
LONGEST_MAKER: Final = 20  # characters before the digests: version and secret id
_MAKER: Final = re.compile(r"v[123]:([\w-]{0,16}):", re.A)
_PART_DIGEST: Final = 2  # characters, which are 12 bits
_PARTS: Final = ("query", "content_type", "headers")  # in the order of their digests; the last one may be missing
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
    compared = _Compared(request, rule, secret)
    raw, canonical = compared.as_sent(), compared.in_canonical_form()
    return f"{_VERSION}:{rule.secret_id or ''}:{raw}{canonical or ''}{compared.by_part()}"


def is_same_fingerprint(stored: str, fresh: str) -> bool:
    """True if both texts have one version and secret id and describe the same request; False for any other two."""
    one = _STORED.fullmatch(stored) or _OLDER.fullmatch(stored)
    other = _STORED.fullmatch(fresh) or _OLDER.fullmatch(fresh)
    if one is None or other is None or one["secret_id"] != other["secret_id"]:
        return False
    if compare_digest(one["raw"], other["raw"]):
        return True
    return one["canonical"] is not None and compare_digest(one["canonical"], other["canonical"] or "")


def is_fingerprint_of(stored: str, request: RequestParts, rule: FingerprintRule) -> bool:
    """True if the stored text was made from this request, with any secret of the rule."""
    found = require_readable(stored, rule)
    compared = _Compared(request, rule, rule.secrets.get(found["secret_id"]))
    if compare_digest(found["raw"], compared.as_sent()):
        return True
    canonical = compared.in_canonical_form() if found["canonical"] else None
    return canonical is not None and compare_digest(found["canonical"], canonical)


def list_differing_parts(
    stored: str, fresh: str, rule: FingerprintRule, request: RequestParts | None
) -> list[str] | None:
    """Return which of query, content type and headers differ; None if the stored text has no digests of them.

    There is no digest of the body alone, which would make it easier to guess: it differs if nothing else does.
    `request` is needed if the stored text was made with an older secret.
    """
    one, other = require_readable(stored, rule), require_readable(fresh, rule)
    parts = other["parts"]
    if one["secret_id"] != other["secret_id"]:
        parts = request and _Compared(request, rule, rule.secrets.get(one["secret_id"])).by_part()
    if not one["parts"] or not parts:
        return None
    places = [slice(place * _PART_DIGEST, (place + 1) * _PART_DIGEST) for place in range(len(_PARTS))]
    return [name for name, place in zip(_PARTS, places, strict=True) if one["parts"][place] != parts[place]]


def require_readable(stored: str, rule: FingerprintRule) -> re.Match[str]:
    """Raise UnreadableFingerprint if the stored text cannot be compared: later code may have written it.

    The answer "another request" would make the client take a new key, and the effect could happen twice.
    """
    found = _STORED.fullmatch(stored) or _OLDER.fullmatch(stored)
    if found is None:
        raise UnreadableFingerprint
    if found["secret_id"] and found["secret_id"] not in rule.secrets:
        raise UnreadableFingerprint(
            f"The stored fingerprint was made with the secret {found['secret_id']!r}, which is not configured. Keep "
            "old secrets in IDEMPOTENCY['SECRETS'] until their records have expired."
        )
    return found


def read_secret_id(stored: str) -> str | None:
    """Return the id of the secret that made a stored text, of which the beginning is enough; "" if it was made without.

    None if this version of the package does not know the format.
    """
    found = _MAKER.match(stored)
    return None if found is None else found[1]


def _serialize(pieces: Iterable[Piece]) -> list[bytes]:
    chunks: list[bytes] = []
    for piece in pieces:
        chunks += (_pack_length(len(piece)),)
        for value in piece:
            chunks += (_pack_length(len(value)), value)
    return chunks


class _Compared:
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
            parts += urlsafe_b64encode(hashed.digest())[:_PART_DIGEST].decode("ascii")
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
