"""How a person names a record on the command line: by its id, a downstream key, or the client's key."""

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any, Final

from django_idempotency.flow.resolve import Reference, find_record
from django_idempotency.management.base import CommandError, choose_database, parse_text
from django_idempotency.management.tables import escape
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import records

_MOST_SHOWN: Final = 20
_NOT_FOUND: Final = (
    "No record has this id, downstream key or idempotency key. Records are deleted after their retention."
)


@dataclass(frozen=True, slots=True)
class Target:
    """The record that was named, and what names it to the functions that settle records."""

    row: IdempotencyKey
    reference: Reference  # a downstream key stays what it is: it says which step is meant

    @property
    def using(self) -> str:
        return self.row.ref.using

    def read_again(self) -> "Target":
        """Return what the record is now; what it was, if it is gone."""
        return Target(records.load(self.row.id, self.using) or self.row, self.reference)


def add_reference(parser: ArgumentParser, *, required: bool = True) -> None:
    what = "the record: its id, a downstream key, or the client's key"
    parser.add_argument("record", metavar="REF", type=parse_text, nargs=None if required else "?", help=what)
    parser.add_argument(
        "--scope", type=parse_text, default="", help="the scope of the client's key, if several scopes have it"
    )


def find_target(options: dict[str, Any]) -> Target:
    """Return the one record that is named; CommandError if there is none, or more than one."""
    reference, using, scope = options["record"], choose_database(options), options["scope"]
    row = find_record(reference, using)
    if row is not None and scope in ("", row.scope):
        return Target(row, reference)
    found = _find_by_key(reference.strip('"'), scope, using)
    if not found:
        raise CommandError(_NOT_FOUND, "absent")
    if len(found) > 1:
        raise _describe_ambiguity(found)
    return Target(found[0], found[0].id)


def _find_by_key(key: str, scope: str, using: str) -> list[IdempotencyKey]:
    """Return the records with this key, along the index that begins with it."""
    rows = IdempotencyKey.objects.using(using).with_time().filter(key=key)
    if scope:
        rows = rows.filter(scope=scope)
    return list(rows.order_by("created_at", "pk")[: _MOST_SHOWN + 1])


def _describe_ambiguity(found: list[IdempotencyKey]) -> CommandError:
    shown = found[:_MOST_SHOWN]
    number = str(len(found)) if len(found) <= _MOST_SHOWN else f"more than {_MOST_SHOWN}"
    lines = [f"  {row.id}  {row.status}  {escape(row.operation)}  scope {escape(row.scope)}" for row in shown]
    text = "\n".join([f"This key has {number} records, in several scopes: give an id, or --scope.", *lines])
    names = ("id", "status", "operation", "tenant", "principal", "scope")
    details = [{name: getattr(row, name) for name in names} for row in shown]
    return CommandError(text, "ambiguous", records=details)
