"""Removes from a text what may be a secret or personal data, so that people may read the rest."""

import re
from typing import Final

LONGEST_MESSAGE: Final = 300
MASK: Final = "[…]"

_BEFORE_SECRETS: Final = (
    r"authorization|bearer|basic|token|secret|password|passwd|pwd|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|"
    r"signature|cookie|session(?:id)?|credential|cvc|cvv|pin|iban|pan"
)
# In this order: the first rules still see the words that the later ones would mask.
_RULES: Final = (
    # After the name of a secret, nothing of the line is kept: how the value is quoted, or where it ends, is not known.
    (re.compile(rf"(?i)\b((?:\w+[-_])?(?:{_BEFORE_SECRETS})['\"]?(?:\s*[:=]|\s)\s*).+"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@]+@"), rf"\1{MASK}@"),  # a user and a password in an address
    (re.compile(r"\?[^\s'\")>\]]+"), f"?{MASK}"),  # the query of an address
    (re.compile(r"[^\s@'\"<>(/\[\]]+@[^\s@'\"<>),]+"), MASK),  # an e-mail address
    (re.compile(r"(?<![\w.])(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+=-]{16,}"), MASK),  # a token or an identifier
    (re.compile(r"\d(?:[ -]?\d){5,}"), MASK),  # a card, an account or a telephone number
)  # fmt: skip


def redact(text: str) -> str:
    """Return the first line of a text, shortened and with everything masked that may be a secret."""
    line = next((line.strip() for line in text[: 10 * LONGEST_MESSAGE].splitlines() if line.strip()), "")
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 1]}…"
