from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.db.models import Count
from django.utils.translation import override

from django_idempotency.console.wording import STATES
from django_idempotency.core.states import Status
from django_idempotency.management.base import PackageCommand, add_database, add_json, choose_database
from django_idempotency.management.jobs import format_counts
from django_idempotency.management.tables import escape
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.health import Health, health
from django_idempotency.monitoring.rules import JobRun
from django_idempotency.monitoring.units import format_interval, format_number


class Command(PackageCommand):
    help = "Count the records in each state and show the last run of each maintenance job. Reads the whole table once."
    section = "idempotency_stats"
    examples = ("", "--json")

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        add_json(parser, "the numbers")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        using = choose_database(options)
        counts, now = count_statuses(using), health(using)
        if options["json"]:
            self.write_json({"statuses": counts, **now.as_json()})
            return
        self.say("\n".join(format_lines(counts, now)))
        for complaint in now.complaints:
            self.say(self.style.ERROR(f"! {escape(str(complaint))}"))


def count_statuses(using: str) -> dict[str, int]:
    rows = IdempotencyKey.objects.using(using).values_list("status").order_by("status").annotate(Count("id"))
    return dict(rows)


def format_lines(counts: dict[str, int], now: Health) -> Iterator[str]:
    """Yield the numbers as a person reads them."""
    for status, count in counts.items():
        yield f"{STATES[Status(status)].label}: {format_number(count)}"
    yield f"oldest unknown outcome: {describe_age(now.oldest_unknown)}"
    yield f"oldest dead letter: {describe_age(now.oldest_dead_letter)}"
    yield f"oldest expired lease: {describe_age(now.oldest_overdue)}"
    for name, run in now.jobs.items():
        yield f"last {name}: {describe_run(run)}"


def describe_run(run: JobRun) -> str:
    """Return when a job last ended, and what it did."""
    if run.finished_ago is None:
        return "has never ended"
    return f"{format_interval(run.finished_ago)} ago, {format_counts(run.counts)}"


def describe_age(seconds: float | None) -> str:
    return "none" if seconds is None else format_interval(seconds)
