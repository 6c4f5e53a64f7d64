import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from django_idempotency.tasks import beat_schedule


class Command(BaseCommand):
    help = "Give django-celery-beat the four duties. An entry that exists stays as somebody edited it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would be added")
        parser.add_argument("--json", action="store_true", help="print what was done as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        there = set(PeriodicTask.objects.filter(name__in=beat_schedule()).values_list("name", flat=True))
        missing = {name: entry for name, entry in beat_schedule().items() if name not in there}
        if not options["dry_run"]:
            for name, entry in missing.items():
                add(name, entry)
        done = {"added": sorted(missing), "kept": sorted(there)}
        said = ", ".join(f"{what}: {' '.join(names) or 'none'}" for what, names in done.items())
        self.stdout.write(json.dumps(done) if options["json"] else said)


def add(name: str, entry: dict[str, Any]) -> None:
    interval, _ = IntervalSchedule.objects.get_or_create(every=int(entry["schedule"]), period=IntervalSchedule.SECONDS)
    expires = entry["options"]["expire_seconds"]
    PeriodicTask.objects.get_or_create(
        name=name, defaults={"task": entry["task"], "interval": interval, "expire_seconds": expires}
    )
