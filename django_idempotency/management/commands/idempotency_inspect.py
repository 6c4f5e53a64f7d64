import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.forms.models import model_to_dict

from django_idempotency.console.bodies import CONTENT
from django_idempotency.flow.resolve import find_record
from django_idempotency.management.base import StoreCommand, add_database, choose_database, parse_text
from django_idempotency.models import IdempotencyEvent, IdempotencyKey


class Command(StoreCommand):
    help = "Show one record and what happened to it. Contents are only shown with --body."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", type=parse_text, help="a record's id, a downstream key, or the client's key")
        parser.add_argument(
            "--body",
            action="store_true",
            help="also show stored headers and body, an operation's data, and the fingerprint",
        )
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        using = choose_database(options)
        found = find_rows(options["record"], using)
        if not found:
            raise CommandError("There is no such record. Records are deleted after their retention.")
        shown = [{**load_fields(row, content=options["body"]), "events": load_events(row, using)} for row in found]
        if options["json"]:
            self.stdout.write(json.dumps(shown, default=str))
        else:
            self.stdout.write("\n\n".join(map(format_row, shown)))


def find_rows(reference: str, using: str) -> list[IdempotencyKey]:
    """Return the record of an id, or all with this key: one key may be used in several scopes."""
    row = find_record(reference, using)
    return [row] if row is not None else list(IdempotencyKey.objects.using(using).filter(key=reference.strip('"')))


def load_fields(row: IdempotencyKey, *, content: bool) -> dict[str, Any]:
    values = {"id": row.id, **model_to_dict(row)}
    if row.response_body is not None:
        values["response_body"] = bytes(row.response_body).decode(errors="replace")
    hidden = () if content else CONTENT
    return {name: value for name, value in values.items() if value not in (None, "") and name not in hidden}


def load_events(row: IdempotencyKey, using: str) -> list[Any]:
    trail = IdempotencyEvent.objects.using(using).filter(record_id=row.id).order_by("id")
    return list(trail.values("at", "kind", "transition", "actor", "reason"))


def format_row(shown: dict[str, Any]) -> str:
    lines = [f"{name}: {value}" for name, value in shown.items() if name != "events"]
    return "\n".join([*lines, *(" ".join(str(part) for part in event.values() if part) for event in shown["events"])])
