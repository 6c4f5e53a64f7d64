"""The response that an operator stores: what it starts from, and what the client will get."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from django_idempotency.console.bodies import Content, describe_bytes, indent_json
from django_idempotency.console.keyset import NEWEST, Rows
from django_idempotency.core.headers import lower_header_names
from django_idempotency.core.replies import Headers, Reply, is_private
from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.records import reply_of

SEARCHED: Final = 2_000  # of the newest records, to find one of the same operation
FILL_IN: Final = "FILL-IN"
SHARED: Final = frozenset({"accept-patch", "allow", "cache-control", "content-language", "vary"})  # of all responses
LONGEST_EXAMPLE: Final = 16 * 1024  # of a body that is offered as an example


@dataclass(frozen=True, slots=True)
class Example:
    """The last completed response of the same operation. Its values belong to another request."""

    row: IdempotencyKey
    reply: Reply

    @property
    def content_type(self) -> str:
        return next((value for name, value in self.reply.headers if name.lower() == "content-type"), "")

    @property
    def body(self) -> Content:
        return describe_bytes(self.reply.body, self.content_type)

    def make_initial(self, *, with_content: bool) -> dict[str, Any]:
        """Return what the form starts from: the shape of the response, without the other request's values."""
        known = {"status": self.reply.status, "content_type": self.content_type or "application/json"}
        if not with_content:
            return known
        return {**known, "headers": "\n".join(self._list_headers()), "body": self._make_shape()}

    def _list_headers(self) -> Iterator[str]:
        for name, value in self.reply.headers:
            if name.lower() in SHARED:
                yield f"{name}: {value}"
            elif name.lower() != "content-type":
                yield f"{name}: {FILL_IN}"

    def _make_shape(self) -> str:
        if not self.reply.body or len(self.reply.body) > LONGEST_EXAMPLE:
            return ""
        try:
            shape = _blank(json.loads(self.reply.body))
        except (ValueError, RecursionError):
            return ""
        return indent_json(json.dumps(shape))


def find_example(rows: Rows, row: IdempotencyKey) -> Example | None:
    """Return the last success of this operation among the newest records; None if there is none."""
    end = NEWEST.find_end(rows, SEARCHED)
    near = rows if end is None else NEWEST.up_to(rows, end)
    alike = near.filter(operation=row.operation, status=Status.COMPLETED, response_status__lt=400)
    found = NEWEST.sorted(alike.defer(None)).first()
    reply = None if found is None else reply_of(found)
    return None if found is None or reply is None else Example(found, reply)


def _blank(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _blank(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_blank(value[0])] if value else []
    return value if value is None or isinstance(value, bool) else FILL_IN


def parse_headers(text: str) -> Headers:
    """Return the headers of a text with one on each line; ValidationError if a line is none, or is never replayed."""
    return tuple(_parse_header(line.strip()) for line in text.splitlines() if line.strip())


def _parse_header(line: str) -> tuple[str, str]:
    name, colon, value = (part.strip() for part in line.partition(":"))
    try:
        (lowered,) = lower_header_names("headers", (name,))
    except ValueError:
        lowered = ""
    if not colon or not value or not lowered or not value.isascii() or not value.isprintable():
        text = _("Enter one header on each line, such as “Location: /payments/17/”. This is none: %(line)s")
        raise ValidationError(text % {"line": line})
    if lowered == "content-type":
        raise ValidationError(_("Enter the content type in its own field."))
    if is_private(lowered):
        raise ValidationError(_("%(name)s belongs to one caller or connection and is never replayed.") % {"name": name})
    return name, value


@dataclass(frozen=True, slots=True)
class Preview:
    """What every retry will get."""

    reply: Reply

    @property
    def status_line(self) -> str:
        try:
            return f"{self.reply.status} {HTTPStatus(self.reply.status).phrase}"
        except ValueError:
            return str(self.reply.status)

    @property
    def body(self) -> Content:
        kind = next((value for name, value in self.reply.headers if name.lower() == "content-type"), "")
        return describe_bytes(self.reply.body, kind)
