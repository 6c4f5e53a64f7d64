"""What the duties' commands share: their options, a person's progress, a machine's JSON."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from django_idempotency.maintenance import Bounds
from django_idempotency.store.database import alias

_LARGEST_BATCH: Final = 100_000
_A_YEAR: Final = 365 * 86_400


class DutyCommand(BaseCommand):
    """Runs one duty once. Exits with 0 when it ran to its end, or to its time limit, and no record failed."""

    duty: Callable[[Bounds], Counter[str]]

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--batch-size", type=int, default=1000, help="rows per batch")
        parser.add_argument("--max-runtime", type=float, default=None, help="stop after so many seconds")
        parser.add_argument("--pause", type=float, default=0.0, help="seconds between two batches")
        parser.add_argument("--dry-run", action="store_true", help="only count what is due in the first batch")
        parser.add_argument("--json", action="store_true", help="print the counts as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        counts = type(self).duty(self.bounds(options))
        self.say(counts, options)
        if counts["failed"]:
            raise CommandError(f"{counts['failed']} of the records failed; the log says why. The next run tries again.")

    def bounds(self, options: dict[str, Any], **more: Any) -> Bounds:
        shown = self.stderr.isatty() and not options["json"]
        if not 1 <= options["batch_size"] <= _LARGEST_BATCH:
            raise CommandError(f"--batch-size must be at least 1, and {_LARGEST_BATCH} at most.")
        check_seconds(options, "max_runtime", "pause")
        return Bounds(
            using=database(options),
            batch_size=options["batch_size"],
            max_runtime=options["max_runtime"],
            pause=options["pause"],
            dry_run=options["dry_run"],
            progress=self._progress if shown else lambda counts: None,
            **more,
        )

    def say(self, counts: Counter[str], options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(counts) if options["json"] else said(counts))

    def _progress(self, counts: Counter[str]) -> None:
        self.stderr.write(f"{said(counts)} …")


def check_seconds(options: dict[str, Any], *names: str) -> None:
    """What a clock can wait for: neither less than nothing nor "nan", which a loop would take for no wait at all."""
    for name in names:
        if options[name] is not None and not 0 <= options[name] <= _A_YEAR:
            raise CommandError(f"--{name.replace('_', '-')} must be a number of seconds, from 0 to {_A_YEAR}.")


def said(counts: Counter[str]) -> str:
    """The counts as a person reads them."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items())) or "nothing to do"


def add_database(parser: ArgumentParser) -> None:
    parser.add_argument("--database", default=None, help="the database of the records; the router's by default")


def database(options: dict[str, Any]) -> str:
    if options["database"] not in (None, *connections):
        raise CommandError(f"--database must be one of {', '.join(connections)}.")
    return options["database"] or alias()


def words(typed: str) -> str:
    """Bytes that are no text arrive as half characters, which no database takes."""
    try:
        typed.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError("this is no UTF-8 text.") from None
    return typed
