"""Stored bytes as text that no browser takes for a page. The template escapes it; nothing here is marked safe."""

import json
import re
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _

from django_idempotency.console.wording import size

SHOWN: Final = 64 * 1024
_HALF: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Content:
    """What is shown of some bytes: their text, or only a sentence about them."""

    note: str
    text: str = ""


def of_bytes(body: bytes | None, content_type: str = "") -> Content:
    if body is None:
        return Content(_("The body was not stored: it was too large, streamed, or left out by the policy."))
    if not body:
        return Content(_("The body is empty."))
    kind = content_type.partition(";")[0].strip().lower()
    described = ", ".join(filter(None, [kind, size(len(body))]))
    text = _as_text(body)
    if text is None:
        return Content(_("Binary: %s") % described)
    if len(body) > SHOWN:
        return Content(
            _("%(described)s; the first %(shown)s") % {"described": described, "shown": size(SHOWN)}, text[:SHOWN]
        )
    return Content(described, pretty(text))


def of_json(text: str) -> Content:
    return Content(size(len(text.encode())), pretty(text[:SHOWN])) if text else Content("")


def pretty(text: str) -> str:
    """JSON in lines; anything else as it is."""
    try:
        return readable(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return text


def readable(text: str) -> str:
    """JSON can hold half a character, and a page cannot."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def _as_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if any(ord(sign) < 32 and sign not in "\t\r\n" for sign in text[:SHOWN]) else text
