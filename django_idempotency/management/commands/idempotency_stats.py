import json
from argparse import ArgumentParser
from typing import Any

from django.db.models import Count

from django_idempotency.management.base import StoreCommand, add_database, choose_database
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.health import Health, health
from django_idempotency.monitoring.units import format_interval


class Command(StoreCommand):
    help = "Count the records in each state and show the last run of each maintenance job. Reads the whole table once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print the numbers as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        using = choose_database(options)
        counts, now = count_statuses(using), health(using)
        if options["json"]:
            self.stdout.write(json.dumps({"statuses": counts, **now.as_json()}))
        else:
            self.stdout.write("\n".join(format_lines(counts, now)))


def count_statuses(using: str) -> dict[str, int]:
    rows = IdempotencyKey.objects.using(using).values_list("status").order_by("status").annotate(Count("id"))
    return dict(rows)


def format_lines(counts: dict[str, int], now: Health) -> list[str]:
    """Return the numbers as a person reads them."""
    return [
        *(f"{status.replace('_', ' ')}: {count}" for status, count in counts.items()),
        f"oldest unknown outcome: {format_seconds(now.oldest_unknown)}",
        f"oldest expired lease: {format_seconds(now.oldest_overdue)}",
        f"dead letters: {now.dead_letters}",
        *(f"last {name}: {format_seconds(run.finished_ago)} ago, {run.counts}" for name, run in now.jobs.items()),
        *(f"! {complaint}" for complaint in now.complaints),
    ]


def format_seconds(seconds: float | None) -> str:
    return "none" if seconds is None else format_interval(seconds)
