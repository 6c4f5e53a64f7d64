"""What the package's commands share: options, a person's progress, a machine's JSON."""

import json
from abc import abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from typing import Any, ClassVar, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connections

from django_idempotency import maintenance
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.maintenance import Bounds
from django_idempotency.monitoring.jobs import BY_NAME
from django_idempotency.store.layout import Change, Refused
from django_idempotency.store.limits import name_error
from django_idempotency.store.records import alias

_LARGEST_BATCH: Final = 100_000
_A_YEAR: Final = 365 * 86_400


class StoreCommand(BaseCommand):
    """A command that reads records. A database that is away, or recovers, is one sentence instead of a traceback."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (Error, StoreUnavailable) as error:
            raise CommandError(describe_failure(error)) from error


def describe_failure(error: Error | StoreUnavailable) -> str:
    """Return the class and the first line of a database's error; what follows may quote a row."""
    return f"The database did not answer, or reported an error: {name_error(error)}"


class JobCommand(StoreCommand):
    """Runs one maintenance job once. Exits with 0 if it ended, or reached its time limit, and no record failed."""

    job: ClassVar[str]  # its name in the table of jobs

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = str(BY_NAME[self.job].purpose)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--batch-size", type=int, default=1000, help="rows per batch")
        parser.add_argument("--max-runtime", type=float, default=None, help="stop after this number of seconds")
        parser.add_argument("--share", type=float, default=1.0, help="the share of its time that the run works")
        parser.add_argument("--dry-run", action="store_true", help="only count the rows of the first batch")
        parser.add_argument("--json", action="store_true", help="print the counts as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        counts = getattr(maintenance, self.job)(self.make_bounds(options))
        self.write_counts(counts, options)
        if counts["failed"]:
            raise CommandError(f"{counts['failed']} of the records failed; see the log. The next run tries again.")

    def make_bounds(self, options: dict[str, Any], **more: Any) -> Bounds:
        shows_progress = self.stderr.isatty() and not options["json"]
        if not 1 <= options["batch_size"] <= _LARGEST_BATCH:
            raise CommandError(f"--batch-size must be at least 1, and {_LARGEST_BATCH} at most.")
        check_seconds(options, "max_runtime")
        if not 0 < options["share"] <= 1:
            raise CommandError("--share must be more than 0, and 1 at most.")
        return Bounds(
            using=choose_database(options),
            batch_size=options["batch_size"],
            max_runtime=options["max_runtime"],
            share=options["share"],
            dry_run=options["dry_run"],
            progress=self._write_progress if shows_progress else lambda counts: None,
            **more,
        )

    def write_counts(self, counts: Counter[str], options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(counts) if options["json"] else format_counts(counts))

    def _write_progress(self, counts: Counter[str]) -> None:
        self.stderr.write(f"{format_counts(counts)} …")


class LayoutCommand(StoreCommand):
    """Changes how PostgreSQL lays out the records. Shows the SQL first if asked to, and asks a person."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--dry-run", action="store_true", help="only print the SQL")
        parser.add_argument("--json", action="store_true", help="print the result as JSON, and ask nothing")
        parser.add_argument(
            "--noinput", "--no-input", action="store_false", dest="interactive", help="ask nothing, and begin"
        )

    @abstractmethod
    def plan(self, using: str, options: dict[str, Any]) -> Change:
        """Return what is to be changed. Refused if nothing is, or if it cannot be."""

    def handle(self, *args: Any, **options: Any) -> None:
        using = choose_database(options)
        vendor = connections[using].vendor
        if vendor != "postgresql":
            raise CommandError(
                f"The database {using!r} is {vendor}: only PostgreSQL can change the layout of the table."
            )
        try:
            change = self.plan(using, options)
            if options["dry_run"]:
                self._write_statements(change.list_statements(), options)
                return
            if options["interactive"] and not options["json"]:
                self._confirm(using)
            shows_progress = self.stderr.isatty() and not options["json"]
            result = change.run(self._write_progress if shows_progress else lambda text: None)
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        text = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in result.items())
        self.stdout.write(json.dumps(result) if options["json"] else text)

    def _confirm(self, using: str) -> None:
        name = connections[using].settings_dict["NAME"]
        if input(f"This lays out the records of the database {name} anew. Type 'yes' to begin: ") != "yes":
            raise CommandError("Nothing was changed.")

    def _write_statements(self, statements: list[str], options: dict[str, Any]) -> None:
        text = "\n".join(f"{statement};" for statement in statements)
        self.stdout.write(json.dumps({"statements": statements}) if options["json"] else text)

    def _write_progress(self, text: str) -> None:
        self.stderr.write(f"{text} …")


def check_seconds(options: dict[str, Any], *names: str) -> None:
    """Reject lengths of time that cannot be waited for, such as -1 and "nan", which a loop would take for no wait."""
    for name in names:
        if options[name] is not None and not 0 <= options[name] <= _A_YEAR:
            raise CommandError(f"--{name.replace('_', '-')} must be a number of seconds, from 0 to {_A_YEAR}.")


def format_counts(counts: Counter[str]) -> str:
    """Return the counts as a person reads them."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items())) or "nothing to do"


def add_database(parser: ArgumentParser) -> None:
    parser.add_argument("--database", default=None, help="the database of the records; by default the router chooses")


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
