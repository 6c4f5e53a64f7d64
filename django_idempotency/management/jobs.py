"""The command of a maintenance job: its bounds, its counts, and how far it is."""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from django.utils.translation import override

from django_idempotency import maintenance
from django_idempotency.console.wording import COUNTS
from django_idempotency.flow.job_run import ReportProgress
from django_idempotency.maintenance import Bounds
from django_idempotency.management.base import (
    CommandError,
    PackageCommand,
    add_database,
    add_json,
    check_seconds,
    choose_database,
)
from django_idempotency.management.progress import ProgressLine
from django_idempotency.monitoring.jobs import BY_NAME
from django_idempotency.monitoring.units import format_number

_LARGEST_BATCH: Final = 100_000


class JobCommand(PackageCommand):
    """Runs one maintenance job once. Exits with 0 if it ended, or reached its time limit, and no record failed."""

    job: ClassVar[str]  # its name in the table of jobs
    section = "maintenance-jobs"
    examples: ClassVar[tuple[str, ...]] = ("--dry-run", "--max-runtime 50 --share 0.25", "--json")
    exit_codes: ClassVar[Mapping[int, str]] = {
        0: "the run ended, or reached --max-runtime",
        1: "a record failed, or an error ended the run; the next run tries again",
        2: "the arguments are wrong",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = str(BY_NAME[self.job].purpose)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--batch-size", type=int, default=1000, help="rows per batch; 1000 by default")
        parser.add_argument("--max-runtime", type=float, default=None, help="stop after this number of seconds")
        parser.add_argument(
            "--share", type=float, default=1.0, help="the share of time that the run works; 1 by default"
        )
        parser.add_argument("--dry-run", action="store_true", help="only count the rows of the first batch")
        add_json(parser, "the counts")

    def handle(self, *args: Any, **options: Any) -> None:
        with self.report_progress(options) as progress:
            counts = getattr(maintenance, self.job)(self.make_bounds(options, progress=progress))
        self.write_counts(counts, options)
        if counts["failed"]:
            raise CommandError(f"{counts['failed']} of the records failed; see the log. The next run tries again.")

    @contextmanager
    def report_progress(self, options: dict[str, Any]) -> Iterator[ReportProgress]:
        """Yield what shows on a terminal how far the run is; nothing elsewhere."""
        if not self.shows_progress or options["dry_run"]:
            yield lambda counts: None
            return
        progress = ProgressLine(self.stderr, self.job, choose_database(options))
        try:
            yield progress
        finally:
            progress.clear()

    def make_bounds(self, options: dict[str, Any], **more: Any) -> Bounds:
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
            **more,
        )

    def write_counts(self, counts: Mapping[str, int], options: dict[str, Any]) -> None:
        if options["json"]:
            self.write_json(counts)
            return
        text, style = format_counts(counts), self.style.ERROR if counts.get("failed") else self.style.SUCCESS
        self.say(style(text) if any(counts.values()) and not options["dry_run"] else text)


@override("en")
def format_counts(counts: Mapping[str, int]) -> str:
    """Return the counts as a person reads them."""
    found = sorted((name, count) for name, count in Counter(counts).items() if count)
    parts = (f"{format_number(count)} {COUNTS.get(name, name.replace('_', ' '))}" for name, count in found)
    return ", ".join(parts) or "nothing to do"
