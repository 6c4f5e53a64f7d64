"""What the package's commands share: options, help, and output for people and for machines."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Mapping
from datetime import datetime, timedelta
from shutil import get_terminal_size
from typing import Any, ClassVar, Final
from uuid import UUID

from django.core.management import base
from django.core.management.base import BaseCommand, CommandParser, DjangoHelpFormatter
from django.db import Error, connections
from django.utils.functional import Promise

from django_idempotency.core.links import docs_url
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.management.tables import escape, escape_lines
from django_idempotency.monitoring.units import format_moment
from django_idempotency.store.limits import name_error
from django_idempotency.store.records import alias

_A_YEAR: Final = 365 * 86_400
_UNBOUNDED: Final = 10_000  # columns: what is piped into grep has one line for each record


class CommandError(base.CommandError):
    """Django's error, which prints its class and its text, with what `--json` prints for programs."""

    def __init__(self, message: str, code: str = "error", **details: Any) -> None:
        super().__init__(escape_lines(message))
        self.code, self.details = code, details


class _HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Django's order of the options, and the examples as they were written."""


class PackageCommand(BaseCommand):
    """A command with examples in its help, JSON on request, and silence at `--verbosity 0`."""

    section: ClassVar[str]  # of docs/reference/commands.md
    examples: ClassVar[tuple[str, ...]] = ("",)
    exit_codes: ClassVar[Mapping[int, str]] = {
        0: "the command did its work",
        1: "the command failed; the message says why",
        2: "the arguments are wrong",
    }
    _verbosity = 1
    _as_json = _has_written_json = False

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        lines = ["examples:", *(f"  manage.py {subcommand} {each}".rstrip() for each in self.examples)]
        lines += ["", "exit codes:", *(f"  {code}  {meaning}" for code, meaning in self.exit_codes.items())]
        epilog = "\n".join([*lines, "", docs_url("reference/commands", self.section)])
        return super().create_parser(prog_name, subcommand, epilog=epilog, formatter_class=_HelpFormatter, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        self._verbosity, self._as_json = int(options.get("verbosity", 1)), bool(options.get("json"))
        self._has_written_json = False
        try:
            return super().execute(*args, **options)
        except (Error, StoreUnavailable) as error:
            failure = CommandError(describe_failure(error), "store-unavailable")
            self._write_error(failure)
            raise failure from error
        except base.CommandError as error:
            self._write_error(error)
            raise

    def say(self, text: str) -> None:
        """Write for a person, unless the person wants silence."""
        if self._verbosity:
            self.stdout.write(escape_lines(text))

    def write_json(self, data: Any) -> None:
        """Write one document. Times are RFC 3339 in UTC."""
        self._has_written_json = True
        self.stdout.write(json.dumps(data, default=_encode))

    @property
    def shows_progress(self) -> bool:
        return bool(self.stderr.isatty() and self._verbosity and not self._as_json)

    @property
    def is_dialogue(self) -> bool:
        """True if a person can be asked: both ends are a terminal."""
        return bool(sys.stdin and sys.stdin.isatty() and self.stdout.isatty() and not self._as_json)

    @property
    def width(self) -> int:
        """The columns of a person's terminal. What is piped is not wrapped."""
        return get_terminal_size().columns if self.stdout.isatty() else _UNBOUNDED

    def _write_error(self, error: base.CommandError) -> None:
        if not self._as_json or self._has_written_json:
            return
        about = {"code": error.code, **error.details} if isinstance(error, CommandError) else {"code": "error"}
        self.write_json({"error": {**about, "message": str(error)}})


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_moment(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Promise):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def describe_failure(error: Error | StoreUnavailable) -> str:
    """Return the class and the first line of a database's error; what follows may quote a row."""
    return f"The database did not answer, or reported an error: {escape(name_error(error))}"


def check_seconds(options: dict[str, Any], *names: str) -> None:
    """Reject lengths of time that cannot be waited for, such as -1 and "nan", which a loop would take for no wait."""
    for name in names:
        if options[name] is not None and not 0 <= options[name] <= _A_YEAR:
            raise CommandError(f"--{name.replace('_', '-')} must be a number of seconds, from 0 to {_A_YEAR}.")


def add_database(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--database", default=None, help="the alias of the records' database; by default the router chooses"
    )


def add_json(parser: ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON")


def choose_database(options: dict[str, Any]) -> str:
    if options["database"] not in (None, *connections):
        raise CommandError(f"--database must be one of {', '.join(connections)}.")
    return options["database"] or alias()


def parse_text(typed: str) -> str:
    """Return the argument, or reject it.

    Undecodable bytes on the command line arrive as lone surrogates, which no database can store.
    """
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError("this is not UTF-8 text.") from None
    return typed
