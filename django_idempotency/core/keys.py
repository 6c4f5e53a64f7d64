"""Parse and validate idempotency keys."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import log2
from typing import Final, TypeAlias, cast

import http_sf

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
        if self.validator is not None and not callable(self.validator):
            raise ValueError(f"validator must be a callable or None; it is {self.validator!r}.")


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
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise _invalid("control_character")
    if not text.isascii():
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
            raise InvalidKey("rejected", objection)


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


# The usual alphabets of random keys, smallest first. The alphabet of a key is the first with all of its characters.
_ALPHABETS: Final = (
    (10, re.compile(r"[0-9]*")),
    (16, re.compile(r"[0-9a-f]*|[0-9A-F]*")),
    (36, re.compile(r"[0-9a-z]*|[0-9A-Z]*")),
    (64, re.compile(r"[0-9A-Za-z+/_-]*")),
    (95, re.compile(r"[ -~]*")),
)


def entropy(bits: float = 128.0) -> Validator:
    """Make a validator that rejects keys whose characters could not contain that many random bits.

    The estimate is log2 of the alphabet's size times the number of characters that do not repeat an earlier run of
    eight. It does not recognise words or counters. A random UUID counts as its 32 digits, so as 128 bits.
    """
    if bits <= 0:
        raise ValueError(f"bits must be more than 0; it is {bits!r}.")

    def validate(key: str) -> str | None:
        return (
            None
            if _estimate_bits(key) >= bits
            else "The key is too easy to guess; use a random UUID or a longer random key."
        )

    return validate


def _estimate_bits(key: str) -> float:
    key = key.rstrip("=")
    if re.fullmatch(r"[0-9A-Fa-f-]*", key):
        key = key.replace("-", "")
    size = next(size for size, alphabet in _ALPHABETS if alphabet.fullmatch(key))
    runs = [key[start : start + 8] for start in range(len(key) - 7)]
    return log2(size) * (len(key) - len(runs) + len(set(runs)))


_UUID_OR_DATE: Final = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(19|20)\d\d-[01]\d-[0-3]\d", re.IGNORECASE
)
_EMAIL: Final = re.compile(r"[^\s@]@[^\s@]+\.[A-Za-z]{2}")
_NUMBER: Final = re.compile(r"(?<![0-9A-Za-z])(\+|00)?\(?\d(?:[ .()/-]{0,2}\d){6,}(?![0-9A-Za-z])")


def no_personal_data(key: str) -> str | None:
    """Reject keys with e-mail addresses, telephone numbers or card numbers; allow UUIDs and ISO dates."""
    text = _UUID_OR_DATE.sub("x", key.replace("%40", "@"))
    if _EMAIL.search(text):
        return "The key seems to contain an e-mail address; use a random key."
    for found in _NUMBER.finditer(text):
        digits = re.sub(r"\D", "", found[0])
        if 9 <= len(digits) <= 15 or (found[1] and len(digits) <= 17) or _is_card(digits):
            return "The key seems to contain a telephone or card number; use a random key."
    return None


def _is_card(digits: str) -> bool:
    """True if there are as many digits as on a card and they pass Luhn's check."""
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def unguessable(key: str) -> str | None:
    """Reject keys under 22 characters, the shortest text with 128 random bits; every usual form of a UUID is longer."""
    return None if len(key) >= 22 else "The key is too short to be unguessable; use a UUID or 22 random characters."


def all_of(*validators: Validator) -> Validator:
    """Make a validator that rejects a key with the first objection of any of these."""

    def validate(key: str) -> str | None:
        return next((objection for each in validators if (objection := each(key))), None)

    return validate
