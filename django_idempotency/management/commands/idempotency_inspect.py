import json
from argparse import ArgumentParser
from typing import Any, ClassVar, Final

from django.forms.models import model_to_dict
from django.utils.translation import override

from django_idempotency.console.bodies import CONTENT
from django_idempotency.console.downstream import list_derived
from django_idempotency.console.timeline import load_details, load_steps
from django_idempotency.core.progress import StepState
from django_idempotency.management.base import PackageCommand, add_database, add_json
from django_idempotency.management.references import add_reference, find_target
from django_idempotency.management.story import write_story
from django_idempotency.management.tables import escape
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.monitoring.units import format_moment
from django_idempotency.store.records import read_effect

SECRET: Final = ("attempt_token",)  # it lets its holder end the attempt
STORED_AS_JSON: Final = ("response_headers", "arguments", "progress")
RENAMED: Final = {"steps_done": "marks"}  # of an effect two are written: before it and after it


class Command(PackageCommand):
    help = "Show one record and its events. Stored contents are shown only with --body."
    section = "idempotency_inspect"
    examples: ClassVar[tuple[str, ...]] = ("order-4711", "5f1c7fd0-53d4-5d6a-9d0a-6a1f3f3d2c55 --all --json")
    exit_codes: ClassVar[dict[int, str]] = {
        0: "the record is shown",
        1: "there is no such record, or several have this key",
        2: "the arguments are wrong",
    }

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_reference(parser)
        parser.add_argument("--all", action="store_true", help="show every column, including the attempt token")
        parser.add_argument(
            "--body",
            action="store_true",
            help="also show stored headers and body, an operation's data, and the fingerprint",
        )
        add_database(parser)
        add_json(parser, "the record and its events")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        target = find_target(options)
        events = list(IdempotencyEvent.objects.using(target.using).filter(record_id=target.row.id).order_by("id"))
        fields = load_fields(target.row, content=options["body"], secrets=options["all"])
        if options["json"]:
            steps = list_steps(target.row, list_derived(events))
            told = [describe_event(each, content=options["body"]) for each in events]
            self.write_json({**fields, **steps, "events": told})
            return
        self.say("\n".join(write_story(target, events, self.style, self.width, content=options["body"])))
        if options["all"] or options["body"]:
            shown = fields if options["all"] else {name: fields[name] for name in CONTENT if name in fields}
            self.say("\nColumns\n" + "\n".join(f"  {name}: {_as_text(value)}" for name, value in shown.items()))


def load_fields(row: IdempotencyKey, *, content: bool, secrets: bool) -> dict[str, Any]:
    """Return the columns that have a value, under the names that say what they hold."""
    values = {"id": row.id, **model_to_dict(row), "effect": read_effect(row)}
    if row.response_body is not None:
        values["response_body"] = bytes(row.response_body).decode(errors="replace")
    values |= {name: _parse(values[name]) for name in STORED_AS_JSON}
    hidden = {*(() if content else CONTENT), *(() if secrets else SECRET)}
    kept = {name: value for name, value in values.items() if value not in (None, "") and name not in hidden}
    return {RENAMED.get(name, name): value for name, value in kept.items()}


def _parse(text: str) -> Any:
    """Return what a column of JSON holds; its text if it cannot be read."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def list_steps(row: IdempotencyKey, derived: list[str]) -> dict[str, Any]:
    steps = load_steps(row)
    names = [step.name for step in steps] or derived
    keys = {"downstream_keys": {name: row.derive(name) for name in names}} if names else {}
    if not steps:
        return keys
    done = [step.name for step in steps if step.state is StepState.DONE]
    return {
        "steps_done": done,
        "steps_in_doubt": [step.name for step in steps if step.name not in done],
        **keys,
    }


def describe_event(event: IdempotencyEvent, *, content: bool) -> dict[str, Any]:
    """Return the event. The message of an exception is content."""
    columns = {name: getattr(event, name) for name in ("at", "kind", "transition", "actor", "reason")}
    details = {name: value for name, value in load_details(event).items() if content or name != "message"}
    return {**columns, "details": details}


def _as_text(value: Any) -> str:
    return format_moment(value) if hasattr(value, "tzinfo") else escape(str(value))
