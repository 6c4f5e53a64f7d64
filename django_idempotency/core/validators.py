"""Validators for keys, which an endpoint may choose."""

import re
from math import log2
from typing import Final

from django_idempotency.core.keys import Validator

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

    The estimate is log2 of the size of the alphabet, times the number of characters that do not repeat an earlier run
    of eight. It does not recognise words or counters. A random UUID has 32 digits and counts as 128 bits.
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


def all_of(*validators: Validator) -> Validator:
    """Make a validator that rejects a key if any of these validators rejects it."""

    def validate(key: str) -> str | None:
        return next((objection for each in validators if (objection := each(key))), None)

    return validate
