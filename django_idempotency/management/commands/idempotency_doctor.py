import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_idempotency.claiming import alias
from django_idempotency.management.doctor import findings


class Command(BaseCommand):
    help = "Look at the live system and say what is wrong. Exits with 1 when something is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", default=None, help="the database of the records; the router's by default")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = findings(options["database"] or alias())
        if options["json"]:
            self.stdout.write(json.dumps({"healthy": not found, "findings": found}))
        else:
            self.stdout.write("\n".join(found) or "nothing is wrong")
        if found:
            raise CommandError(f"There is something to look at: {len(found)}.")
