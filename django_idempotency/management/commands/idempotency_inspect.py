import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.forms.models import model_to_dict

from django_idempotency.flow.resolve import find_record
from django_idempotency.management.base import add_database, database, words
from django_idempotency.models import IdempotencyEvent, IdempotencyKey

# What a client sent or was answered; everything else says only what became of it.
CONTENT = ("response_body", "arguments", "progress")


class Command(BaseCommand):
    help = "Show one record and what happened to it. Contents are shown on request only."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", type=words, help="a record's id, a derived key, or the client's key")
        parser.add_argument("--body", action="store_true", help="show the stored body and an operation's data too")
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        using = database(options)
        found = records(options["record"], using)
        if not found:
            raise CommandError("There is no such record; an answer past its retention is deleted.")
        shown = [{**fields(row, content=options["body"]), "events": events(row, using)} for row in found]
        if options["json"]:
            self.stdout.write(json.dumps(shown, default=str))
        else:
            self.stdout.write("\n\n".join(map(as_text, shown)))


def records(reference: str, using: str) -> list[IdempotencyKey]:
    """One key may stand in several scopes."""
    row = find_record(reference, using)
    return [row] if row is not None else list(IdempotencyKey.objects.using(using).filter(key=reference.strip('"')))


def fields(row: IdempotencyKey, *, content: bool) -> dict[str, Any]:
    values = {"id": row.id, **model_to_dict(row)}
    if row.response_body is not None:
        values["response_body"] = bytes(row.response_body).decode(errors="replace")
    hidden = () if content else CONTENT
    return {name: value for name, value in values.items() if value not in (None, "") and name not in hidden}


def events(row: IdempotencyKey, using: str) -> list[Any]:
    trail = IdempotencyEvent.objects.using(using).filter(record_id=row.id).order_by("id")
    return list(trail.values("at", "kind", "transition", "actor", "reason"))


def as_text(shown: dict[str, Any]) -> str:
    said = [f"{name}: {value}" for name, value in shown.items() if name != "events"]
    return "\n".join([*said, *(" ".join(str(part) for part in event.values() if part) for event in shown["events"])])
