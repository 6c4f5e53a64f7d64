import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Count

from django_idempotency.management.base import add_database, database
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.health import Health, health


class Command(BaseCommand):
    help = "Say how many records are in which state, and how the duties are doing. Reads the whole table once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print the figures as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        using = database(options)
        counts, now = by_status(using), health(using)
        if options["json"]:
            self.stdout.write(json.dumps({"statuses": counts, **now.as_json()}))
        else:
            self.stdout.write("\n".join(lines(counts, now)))


def by_status(using: str) -> dict[str, int]:
    rows = IdempotencyKey.objects.using(using).values_list("status").order_by("status").annotate(Count("id"))
    return dict(rows)


def lines(counts: dict[str, int], now: Health) -> list[str]:
    """The figures as a person reads them."""
    return [
        *(f"{status.replace('_', ' ')}: {count}" for status, count in counts.items()),
        f"oldest doubt: {age(now.oldest_unknown)}",
        f"oldest lease that ran out: {age(now.oldest_overdue)}",
        f"dead letters: {now.dead_letters}",
        *(f"last {duty}: {age(run['finished_ago'])} ago, {run['counts']}" for duty, run in now.duties.items()),
        *(f"! {complaint}" for complaint in now.complaints),
    ]


def age(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds:.0f} s"
