import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from django_idempotency.management.base import StoreCommand, add_database, choose_database, describe_failure
from django_idempotency.monitoring.findings import Code, Finding, describe_plainly
from django_idempotency.monitoring.health import examine


class Command(StoreCommand):
    help = "Look at the live system and say what is wrong. Exits with 1 if something is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = examine(choose_database(options))
        except Error as error:
            found = [Finding(Code.STORE_UNAVAILABLE, {"error": describe_failure(error)})]
        if options["json"]:
            self.stdout.write(json.dumps({"healthy": not found, "findings": [as_json(each) for each in found]}))
        else:
            self.stdout.write("\n".join(map(describe_plainly, found)) or "nothing is wrong")
        if found:
            raise CommandError(f"Problems found: {len(found)}.")


def as_json(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code.value, "text": describe_plainly(finding), **finding.values}
