from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.utils.translation import override

from django_idempotency.console.keyset import LOOK
from django_idempotency.console.outlook import describe_next, is_late
from django_idempotency.console.wording import STATES, shorten_key
from django_idempotency.core.states import Status
from django_idempotency.management.base import (
    CommandError,
    PackageCommand,
    add_database,
    add_json,
    choose_database,
    parse_text,
)
from django_idempotency.management.listing import Listed, list_records
from django_idempotency.management.tables import format_rows
from django_idempotency.monitoring.units import format_interval, format_moment, format_number, parse_duration

_MOST: Final = 10_000


def parse_statuses(text: str) -> list[Status]:
    """Return the states that are named, or reject the argument."""
    try:
        return [Status(name.strip()) for name in text.split(",")]
    except ValueError as error:
        raise ArgumentTypeError(f"{error}; give some of {', '.join(Status)}.") from None


def parse_age(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


class Command(PackageCommand):
    help = "List records by their state, operation, age and principal."
    section = "idempotency_list"
    examples: ClassVar[tuple[str, ...]] = (
        "--status unknown,dead_letter --older-than 1h",
        "--operation payments.create --limit 200 --json",
    )
    exit_codes: ClassVar[dict[int, str]] = {
        0: "the records are listed, even if there are none",
        1: "the database did not answer",
        2: "the arguments are wrong",
    }

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--status", type=parse_statuses, default=[], metavar="STATUS,…", help=f"one or more of {', '.join(Status)}"
        )
        parser.add_argument("--operation", type=parse_text, default="", help="only records of this operation")
        parser.add_argument("--tenant", type=parse_text, default="", help="only records of this tenant")
        parser.add_argument(
            "--principal", type=parse_text, default="", help="only records of this principal, such as user:7"
        )
        parser.add_argument(
            "--older-than", type=parse_age, default=None, metavar="AGE", help="claimed at least this long ago: 1h"
        )
        parser.add_argument("--limit", type=int, default=50, help="the largest number of records; 50 by default")
        add_database(parser)
        add_json(parser, "the records")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["limit"] <= _MOST:
            raise CommandError(f"--limit must be at least 1, and {_MOST} at most.")
        found = list_records(
            choose_database(options),
            statuses=options["status"],
            operation=options["operation"],
            tenant=options["tenant"],
            principal=options["principal"],
            older_than=options["older_than"],
            limit=options["limit"],
        )
        if options["json"]:
            records = [describe_record(row) for row in found.rows]
            self.write_json(
                {"records": records, "more": found.has_more or found.was_cut, "searched_to": found.searched_to}
            )
        else:
            self._write_table(found)

    def _write_table(self, found: Listed) -> None:
        for row, line in zip(found.rows, format_records(found.rows, self.width), strict=True):
            self.say(self.style.WARNING(line) if is_late(row) else line)
        self.say(describe_end(found))


def describe_record(row: Any) -> dict[str, Any]:
    """Return what a program needs to find the record again, and what happens to it next."""
    names = ("id", "status", "operation", "tenant", "principal", "scope", "key", "attempts", "reconcile_attempts")
    times = ("created_at", "locked_until", "reconcile_after", "grace_until", "completed_at", "expires_at")
    return {name: getattr(row, name) for name in (*names, "last_error_code", *times)}


def format_records(rows: Sequence[Any], width: int) -> list[str]:
    """Return the lines of each record, as a table where the terminal is wide enough."""
    cells = [
        (
            str(row.id),
            str(STATES[Status(row.status)].label),
            f"{format_interval(row.read_at - row.created_at, units=1)} old",
            row.operation or "-",
            row.principal or "-",
            shorten_key(row.key),
            describe_next(row),
        )
        for row in rows
    ]
    return list(format_rows(cells, width)) if cells else []


def describe_end(found: Listed) -> str:
    """Return how many records were found, and what was not searched."""
    number = len(found.rows)
    text = f"{format_number(number)} record{'' if number == 1 else 's'}"
    if found.was_cut:
        text += f" among the first {format_number(LOOK)}"
        if found.searched_to is None:
            return f"{text}."
        return f"{text}, back to {format_moment(found.searched_to)}; --older-than searches further back."
    return f"{text}; there are more: raise --limit." if found.has_more else f"{text}."
