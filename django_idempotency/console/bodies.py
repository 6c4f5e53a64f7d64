"""Stored bytes as text that no browser interprets. The template escapes it; nothing here is marked safe."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _

from django_idempotency.console.wording import format_size

# What the client sent or received. Only people with the permission `view_content`, and commands with --body, show it.
# A plain fingerprint is content too: the body of a short request can be guessed until its digest fits.
CONTENT: Final = ("response_body", "response_headers", "arguments", "progress", "fingerprint")
SHOWN: Final = 64 * 1024
LONGEST_INDENTED: Final = 4 * SHOWN  # indentation can make a deeply nested text a thousand times as long
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Content:
    """What is shown of some bytes: their text, or only a note about them."""

    note: str
    text: str = ""


def describe_bytes(body: bytes | None, content_type: str = "") -> Content:
    """Return a body as text, shortened where it is long."""
    if body is None:
        return Content(_("The body was not stored: it was too large, streamed, or left out by the policy."))
    if not body:
        return Content(_("The body is empty."))
    kind = content_type.partition(";")[0].strip().lower()
    description = ", ".join(filter(None, [kind, format_size(len(body))]))
    text = _decode(body)
    if text is None:
        return Content(_("Binary: %s") % description)
    return _shorten(text, description, is_long=len(body) > SHOWN)


def describe_json(text: str) -> Content:
    """Return a JSON text with indentation, shortened where it is long."""
    return _shorten(text, format_size(len(text.encode())), is_long=len(text) > SHOWN) if text else Content("")


def describe_all_json(texts: Iterable[str]) -> list[Content]:
    """Return each JSON text as `describe_json` does, until all of them together are long; then only their sizes."""
    described, length = [], 0
    for text in texts:
        content = describe_json(text) if length < LONGEST_INDENTED else Content(format_size(len(text.encode())))
        described.append(content)
        length += len(content.text)
    return described


def _shorten(text: str, description: str, *, is_long: bool) -> Content:
    if is_long:
        note = _("%(description)s; the first %(shown)s") % {"description": description, "shown": format_size(SHOWN)}
        return Content(note, replace_surrogates(text[:SHOWN]))
    return Content(description, indent_json(text))


def indent_json(text: str) -> str:
    """Return JSON with indentation; any other text, and JSON that would become very long, unchanged."""
    try:
        pieces = json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text))
        indented, length = [], 0
        for piece in pieces:
            indented.append(piece)
            length += len(piece)
            if length > LONGEST_INDENTED:
                return replace_surrogates(text)
    except (ValueError, RecursionError):
        return replace_surrogates(text)
    return replace_surrogates("".join(indented))


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates: JSON can contain them, a page cannot."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _decode(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if any(ord(sign) < 32 and sign not in "\t\r\n" for sign in text[:SHOWN]) else text
