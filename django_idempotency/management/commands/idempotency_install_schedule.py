from argparse import ArgumentParser
from typing import Any

from django.apps import apps

from django_idempotency.management.base import CommandError, PackageCommand, add_json


class Command(PackageCommand):
    section = "idempotency_install_schedule"
    examples = ("--dry-run", "")
    help = "Add the maintenance jobs to django-celery-beat. Existing entries are not changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only show what would be added")
        add_json(parser, "the result")

    def handle(self, *args: Any, **options: Any) -> None:
        if not apps.is_installed("django_celery_beat"):
            raise CommandError(
                "django_celery_beat is not in INSTALLED_APPS: install django-celery-beat, add it and migrate. "
                "Celery's own beat needs no command: CELERY_BEAT_SCHEDULE = beat_schedule()."
            )
        from django_idempotency.management.beat import install_entries

        done = install_entries(dry_run=options["dry_run"])
        if options["json"]:
            self.write_json(done)
        else:
            self.say(", ".join(f"{what}: {' '.join(names) or 'none'}" for what, names in done.items()))
