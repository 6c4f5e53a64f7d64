import json
from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Add the maintenance jobs to django-celery-beat. Existing entries are not changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only show what would be added")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if not apps.is_installed("django_celery_beat"):
            raise CommandError(
                "django_celery_beat is not in INSTALLED_APPS: install django-celery-beat, add it and migrate. "
                "Celery's own beat needs no command: CELERY_BEAT_SCHEDULE = beat_schedule()."
            )
        from django_idempotency.management.beat import install_entries

        done = install_entries(dry_run=options["dry_run"])
        text = ", ".join(f"{what}: {' '.join(names) or 'none'}" for what, names in done.items())
        self.stdout.write(json.dumps(done) if options["json"] else text)
