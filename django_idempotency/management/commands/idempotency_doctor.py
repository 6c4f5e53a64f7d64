import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from django_idempotency.management.base import StoreCommand, add_database, choose_database, describe_failure
from django_idempotency.monitoring.findings import Code, Finding, describe_plainly
from django_idempotency.monitoring.health import examine
from django_idempotency.monitoring.places import Place, list_places
from django_idempotency.monitoring.promises import PROMISES
from django_idempotency.monitoring.proof import Busy, prove


class Command(StoreCommand):
    help = "Look at the live system and say what is wrong. Exits with 1 if something is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")
        codes = [code.value for code in Code]
        parser.add_argument(
            "--ignore", action="append", default=[], choices=codes, metavar="CODE", help="accept findings of this code"
        )
        parser.add_argument("--prove", action="store_true", help="try whether the database keeps what is promised")
        parser.add_argument("--host", action="append", default=[], help="prove over this HOST or HOST:PORT too")
        parser.add_argument("--dry-run", action="store_true", help="only say what --prove would try, and where")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["prove"] and (options["host"] or options["dry_run"]):
            raise CommandError("--host and --dry-run need --prove.")
        using = choose_database(options)
        if not options["prove"]:
            self._report(_examine(using), "nothing is wrong", options)
            return
        try:
            places = list_places(using, options["host"])
        except ValueError as error:
            raise CommandError(f"--host: {error}") from error
        if options["dry_run"]:
            self._write_plan(places, options)
        else:
            self._report(self._prove(using, places, options), "every promise holds", options)

    def _report(self, found: list[Finding], well: str, options: dict[str, Any]) -> None:
        found = [each for each in found if each.code not in options["ignore"]]
        advice = [each for each in found if each.is_advice]
        problems = [each for each in found if not each.is_advice]
        if options["json"]:
            report = {"healthy": not problems, "findings": list(map(as_json, problems))}
            self.stdout.write(json.dumps({**report, "advice": list(map(as_json, advice))}))
        else:
            self.stdout.write("\n".join(map(describe_plainly, problems)) or well)
            for each in advice:
                self.stdout.write(f"Advice: {describe_plainly(each)}")
        if problems:
            raise CommandError(f"Problems found: {len(problems)}.")

    def _prove(self, using: str, places: list[Place], options: dict[str, Any]) -> list[Finding]:
        shows_progress = self.stderr.isatty() and not options["json"]
        try:
            return prove(using, places, self._write_progress if shows_progress else lambda name: None)
        except Busy as busy:
            raise CommandError(f"{busy.__doc__} Try again in a minute.") from busy

    def _write_progress(self, name: str) -> None:
        self.stderr.write(f"{name} …")

    def _write_plan(self, places: list[Place], options: dict[str, Any]) -> None:
        plan = {"connections": [place.host for place in places], "promises": list(PROMISES)}
        lines = (f"{name}: {', '.join(planned)}" for name, planned in plan.items())
        self.stdout.write(json.dumps(plan) if options["json"] else "\n".join(lines))


def _examine(using: str) -> list[Finding]:
    try:
        return examine(using)
    except Error as error:
        return [Finding(Code.STORE_UNAVAILABLE, {"error": describe_failure(error)})]


def as_json(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code.value, "text": describe_plainly(finding), **finding.values}
