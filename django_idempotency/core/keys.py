"""Header text to key, or the reason why it is none."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import log2
from typing import Final, TypeAlias, cast

import http_sf

from django_idempotency.exceptions import InvalidKey

LONGEST: Final = 255  # what the record's column holds

Validator: TypeAlias = Callable[[str], str | None]  # None, or a sentence for the client that does not repeat the key
Pair: TypeAlias = tuple[object, object]  # a value and its parameters, as RFC 9651 reads them

REFUSALS: Final = {
    "empty": "The key is empty.",
    "several_values": "The header holds several values; send exactly one key.",
    "control_character": "The key contains a control character.",
    "not_ascii": "The key contains a character outside ASCII.",
    "space": "A key that contains a space must stand in double quotes.",
    "semicolon": "A key that contains a semicolon must stand in double quotes.",
    "malformed_string": "Double quotes must enclose the whole key, with a backslash before each quote or backslash.",
    "unquoted": "The key must stand in double quotes.",
    "not_a_string": "The key must be a string in double quotes, not a number, boolean, date, byte sequence or list.",
}


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What an endpoint accepts as a key."""

    strict: bool = False  # only the quoted form of RFC 9651 is a key
    min_length: int = 1
    max_length: int = LONGEST
    validator: Validator | None = None  # sees every key that is well-formed

    def __post_init__(self) -> None:
        if not 1 <= self.max_length <= LONGEST:
            raise ValueError(f"max_length must be from 1 to {LONGEST}; it is {self.max_length!r}.")
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(f"min_length must be from 1 to max_length; it is {self.min_length!r}.")
        if self.validator is not None and not callable(self.validator):
            raise ValueError(f"validator must be a callable or None; it is {self.validator!r}.")


ANY_KEY: Final = KeyRule()


def parse_key(lines: Sequence[str], rule: KeyRule = ANY_KEY, *, first: Validator | None = None) -> str:
    """The key in the header's lines; InvalidKey says why there is none.

    `"k"` and a bare `k` are the same key. A bare key is taken byte for byte, whatever it looks like, but has no
    space, comma, semicolon or quote: RFC 9651 reads those as structure, and two readings would be two keys.
    `first` is a validator that sees the key before the rule's own.
    """
    if len(lines) > 1:
        raise _refusal("several_values")
    text = "".join(lines).strip(" ")
    _require_ascii(text)
    key = _quoted(text) if text.startswith('"') else _bare(text, rule)
    _require_fit(key, rule, first)
    return key


def _refusal(reason: str) -> InvalidKey:
    return InvalidKey(reason, REFUSALS[reason])


def _require_ascii(text: str) -> None:
    if not text:
        raise _refusal("empty")
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise _refusal("control_character")
    if not text.isascii():
        raise _refusal("not_ascii")


def _quoted(text: str) -> str:
    try:
        item = cast(Pair, http_sf.parse(text.encode("ascii"), tltype="item"))
    except http_sf.StructuredFieldError:
        raise _refusal("several_values" if len(_members(text)) > 1 else "malformed_string") from None
    key = str(item[0])
    if not key.strip(" "):
        raise _refusal("empty")
    return key


def _bare(text: str, rule: KeyRule) -> str:
    if rule.strict:
        raise _refusal(_why_not_strict(text))
    for mark, reason in ((",", "several_values"), ('"', "malformed_string"), (" ", "space"), (";", "semicolon")):
        if mark in text:
            raise _refusal(reason)
    return text


def _why_not_strict(text: str) -> str:
    members = _members(text)
    if len(members) > 1:
        return "several_values"
    if not members or isinstance(members[0][0], http_sf.Token):
        return "unquoted"
    return "not_a_string"


def _members(text: str) -> list[Pair]:
    """The members of the text read as an RFC 9651 list; none where it cannot be read as one."""
    try:
        return cast(list[Pair], http_sf.parse(text.encode("ascii"), tltype="list"))
    except http_sf.StructuredFieldError:
        return []


def _require_fit(key: str, rule: KeyRule, first: Validator | None) -> None:
    if len(key) < rule.min_length:
        raise InvalidKey("too_short", f"The key must have at least {rule.min_length} characters.")
    if len(key) > rule.max_length:
        raise InvalidKey("too_long", f"The key must have at most {rule.max_length} characters.")
    for validator in (first, rule.validator):
        if validator is not None and (objection := validator(key)):
            raise InvalidKey("rejected", objection)


DIGEST: Final = "sha256:"


def digest_of(text: str) -> str:
    """What stands for a text that does not fit its column."""
    return DIGEST + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def fitted(name: str, text: object) -> str:
    """A key or scope that no client sent: visible ASCII that fits is kept, any other text is replaced by its digest."""
    if not isinstance(text, str):
        raise InvalidKey("not_text", f"The {name} must be a str; it is of type {type(text).__name__}.")
    if not text:
        raise InvalidKey("empty", f"The {name} is empty.")
    kept = len(text) <= LONGEST and re.fullmatch(r"[!-~]+", text) and not text.startswith(DIGEST)
    return text if kept else digest_of(text)


# The usual alphabets of random keys, smallest first: what a key is written in is the smallest that has all of it.
ALPHABETS: Final = (
    (10, re.compile(r"[0-9]*")),
    (16, re.compile(r"[0-9a-f]*|[0-9A-F]*")),
    (36, re.compile(r"[0-9a-z]*|[0-9A-Z]*")),
    (64, re.compile(r"[0-9A-Za-z+/_-]*")),
    (95, re.compile(r"[ -~]*")),
)


def entropy(bits: float = 128.0) -> Validator:
    """Refuses keys whose characters could not carry that many random bits.

    The estimate is log2 of the alphabet times the characters that do not repeat an earlier run of eight; it knows
    nothing about words or counters, and credits a random UUID with its 32 digits, so with 128 bits.
    """
    if bits <= 0:
        raise ValueError(f"bits must be more than 0; it is {bits!r}.")

    def validate(key: str) -> str | None:
        return (
            None
            if _estimate(key) >= bits
            else "The key is too easy to guess; use a random UUID or a longer random key."
        )

    return validate


def _estimate(key: str) -> float:
    key = key.rstrip("=")
    if re.fullmatch(r"[0-9A-Fa-f-]*", key):
        key = key.replace("-", "")
    size = next(size for size, alphabet in ALPHABETS if alphabet.fullmatch(key))
    runs = [key[start : start + 8] for start in range(len(key) - 7)]
    return log2(size) * (len(key) - len(runs) + len(set(runs)))


UUID_OR_DATE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(19|20)\d\d-[01]\d-[0-3]\d", re.IGNORECASE)
EMAIL: Final = re.compile(r"[^\s@]@[^\s@]+\.[A-Za-z]{2}")
NUMBER: Final = re.compile(r"(?<![0-9A-Za-z])(\+|00)?\(?\d(?:[ .()/-]{0,2}\d){6,}(?![0-9A-Za-z])")


def no_personal_data(key: str) -> str | None:
    """Refuses e-mail addresses, telephone numbers and card numbers; UUIDs and ISO dates are not taken for numbers."""
    text = UUID_OR_DATE.sub("x", key.replace("%40", "@"))
    if EMAIL.search(text):
        return "The key seems to contain an e-mail address; use a random key."
    for found in NUMBER.finditer(text):
        digits = re.sub(r"\D", "", found[0])
        if 9 <= len(digits) <= 15 or (found[1] and len(digits) <= 17) or _is_card(digits):
            return "The key seems to contain a telephone or card number; use a random key."
    return None


def _is_card(digits: str) -> bool:
    """Luhn's check over as many digits as cards have."""
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def unguessable(key: str) -> str | None:
    """Refuses keys under 22 characters, the shortest spelling of 128 bits; every usual spelling of a UUID has more."""
    return None if len(key) >= 22 else "The key is too short to be unguessable; use a UUID or 22 random characters."


def all_of(*validators: Validator) -> Validator:
    """Every one of them must agree; the first objection is given."""

    def validate(key: str) -> str | None:
        return next((objection for each in validators if (objection := each(key))), None)

    return validate
