"""Parse and validate idempotency keys."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import log2
from typing import Final, TypeAlias, cast

import http_sf

from django_idempotency.core.validation import discard_awaitable, require_function
from django_idempotency.exceptions import InvalidKey

LONGEST: Final = 255  # the length of the record's column
LONGEST_SENT: Final = 4 * LONGEST  # a form's field can have megabytes; in quotes, each character may have a backslash

Validator: TypeAlias = Callable[[str], str | None]  # None, or a sentence for the client that does not repeat the key
Pair: TypeAlias = tuple[object, object]  # a value and its parameters, as RFC 9651 reads them

REASONS: Final = {
    "empty": "The key is empty.",
    "several_values": "The header contains several values; send exactly one key.",
    "control_character": "The key contains a control character.",
    "not_ascii": "The key contains a character outside ASCII.",
    "space": "A key that contains a space must be in double quotes.",
    "semicolon": "A key that contains a semicolon must be in double quotes.",
    "malformed_string": "Double quotes must enclose the whole key, with a backslash before each quote or backslash.",
    "unquoted": "The key must be in double quotes.",
    "not_a_string": "The key must be a string in double quotes, not a number, boolean, date, byte sequence or list.",
}


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Which keys an endpoint accepts."""

    strict: bool = False  # accept only the quoted form of RFC 9651
    min_length: int = 1
    max_length: int = LONGEST
    validator: Validator | None = None  # called with every well-formed key

    def __post_init__(self) -> None:
        if not 1 <= self.max_length <= LONGEST:
            raise ValueError(f"max_length must be from 1 to {LONGEST}; it is {self.max_length!r}.")
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(f"min_length must be from 1 to max_length; it is {self.min_length!r}.")
        require_function("validator", self.validator)


ANY_KEY: Final = KeyRule()


def parse_key(lines: Sequence[str], rule: KeyRule = ANY_KEY, *, first: Validator | None = None) -> str:
    """Return the key in the header's lines; raise InvalidKey, with the reason, if there is none.

    `"k"` and a bare `k` are the same key. A bare key is taken byte for byte, but must not contain a space, comma,
    semicolon or quote: RFC 9651 gives those a meaning, and two parsers would see two different keys.
    `first` is a validator that sees the key before the rule's own.
    """
    if len(lines) > 1:
        raise _invalid("several_values")
    text = "".join(lines).strip(" ")
    if len(text) > LONGEST_SENT:
        raise _too_long(rule)
    _require_ascii(text)
    key = _parse_quoted(text) if text.startswith('"') else _parse_bare(text, rule)
    _require_accepted(key, rule, first)
    return key


def _invalid(reason: str) -> InvalidKey:
    return InvalidKey(reason, REASONS[reason])


def _too_long(rule: KeyRule) -> InvalidKey:
    return InvalidKey("too_long", f"The key must have at most {rule.max_length} characters.")


def _require_ascii(text: str) -> None:
    if not text:
        raise _invalid("empty")
    if text.isascii() and text.isprintable():
        return
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise _invalid("control_character")
    raise _invalid("not_ascii")


def _parse_quoted(text: str) -> str:
    try:
        item = cast(Pair, http_sf.parse(text.encode("ascii"), tltype="item"))
    except http_sf.StructuredFieldError:
        raise _invalid("several_values" if len(_parse_list(text)) > 1 else "malformed_string") from None
    key = str(item[0])
    if not key.strip(" "):
        raise _invalid("empty")
    return key


def _parse_bare(text: str, rule: KeyRule) -> str:
    if rule.strict:
        raise _invalid(_explain_why_not_strict(text))
    for mark, reason in ((",", "several_values"), ('"', "malformed_string"), (" ", "space"), (";", "semicolon")):
        if mark in text:
            raise _invalid(reason)
    return text


def _explain_why_not_strict(text: str) -> str:
    members = _parse_list(text)
    if len(members) > 1:
        return "several_values"
    if not members or isinstance(members[0][0], http_sf.Token):
        return "unquoted"
    return "not_a_string"


def _parse_list(text: str) -> list[Pair]:
    """Parse the text as an RFC 9651 list and return its members; none if it is not a list."""
    try:
        return cast(list[Pair], http_sf.parse(text.encode("ascii"), tltype="list"))
    except http_sf.StructuredFieldError:
        return []


def _require_accepted(key: str, rule: KeyRule, first: Validator | None) -> None:
    if len(key) < rule.min_length:
        raise InvalidKey("too_short", f"The key must have at least {rule.min_length} characters.")
    if len(key) > rule.max_length:
        raise _too_long(rule)
    for validator in (first, rule.validator):
        if validator is not None and (objection := validator(key)):
            raise InvalidKey("rejected", _NO_VERDICT if discard_awaitable(objection) else objection)


_NO_VERDICT: Final = "The key could not be checked."
_DIGEST: Final = "sha256:"


def digest_text(text: str) -> str:
    """Return the digest that is stored instead of a text that does not fit its column."""
    return _DIGEST + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def fit_to_column(name: str, text: object) -> str:
    """Return a key or scope from code, not from a client, as it is stored: visible ASCII that fits, else a digest."""
    if not isinstance(text, str):
        raise InvalidKey("not_text", f"The {name} must be a str; it is a {type(text).__name__}.")
    if not text:
        raise InvalidKey("empty", f"The {name} is empty.")
    fits = len(text) <= LONGEST and re.fullmatch(r"[!-~]+", text) and not text.startswith(_DIGEST)
    return text if fits else digest_text(text)


def fit_name(text: str) -> str:
    """Return a principal or an operation as it is stored: one that does not fit its column is digested, not cut.

    So is a text that looks like a digest: no name can then be the digest of another one.
    """
    return text if len(text) <= LONGEST and not text.startswith(_DIGEST) else digest_text(text)


UNGUESSABLE_BITS: Final = 80
_SHORTEST: Final = 22  # characters; the shortest usual form of 128 random bits
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){2}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
_PREDICTABLE_VERSIONS: Final = "126"  # made of a clock and the address of a machine
_UUID_BITS: Final = 122
_PREDICTABLE_PIECE: Final = re.compile(
    r"([A-Z]*|[a-z]*)([A-Z][a-z]{2,})*\d*"  # words, also in camel case, and a number behind them
    r"|\d+[A-Za-z]|\d{8}T\d{4,}Z?"  # times
)


def unguessable(key: str) -> str | None:
    """Reject keys of under 22 characters, and keys whose random part could not have 80 bits.

    The key is split at every character that is not a letter or digit. Numbers add no bits, and neither do words, words
    with a number and times of more than three characters: `order-2026-11-19-000001` has no random part. Each character
    of the other pieces adds the bits of an alphabet of 16, 36 or 62 characters, unless it ends a run of four that
    occurred before. A UUID has 122 bits, or none if its version says that it was made from a clock.
    """
    if len(key) >= _SHORTEST and _count_random_bits(key) >= UNGUESSABLE_BITS:
        return None
    return "The key is too easy to guess; use a random UUID or a longer random key."


def _count_random_bits(key: str) -> float:
    found = _UUID.search(key)
    if found is not None:
        is_random = found[0][14] not in _PREDICTABLE_VERSIONS and len(set(found[0])) > 6  # 00000000-0000-… is not
        return _UUID_BITS if is_random else 0
    bits, seen = 0.0, set[str]()
    for piece in re.findall(r"[0-9A-Za-z]+", key):
        if piece.isdecimal() or (len(piece) > 3 and _PREDICTABLE_PIECE.fullmatch(piece)):
            continue
        size = 62 if re.search("[a-z]", piece) and re.search("[A-Z]", piece) else 36
        if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", piece):
            size = 16
        runs = [piece[start : start + 4] for start in range(len(piece) - 3)]
        fresh = set(runs) - seen
        seen |= fresh
        bits += log2(size) * (len(piece) - len(runs) + len(fresh))
    return bits
