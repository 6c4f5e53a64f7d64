import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_idempotency.management.base import add_database, database
from django_idempotency.monitoring.findings import findings


class Command(BaseCommand):
    help = "Look at the live system and say what is wrong. Exits with 1 when something is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = findings(database(options))
        if options["json"]:
            self.stdout.write(json.dumps({"healthy": not found, "findings": found}))
        else:
            self.stdout.write("\n".join(found) or "nothing is wrong")
        if found:
            raise CommandError(f"There is something to look at: {len(found)}.")
