from argparse import ArgumentParser
from typing import Any, ClassVar, Final

from django.db import Error

from django_idempotency.management.base import (
    CommandError,
    PackageCommand,
    add_database,
    add_json,
    choose_database,
    describe_failure,
)
from django_idempotency.management.tables import escape
from django_idempotency.monitoring.findings import Code, Finding, Severity, describe_plainly
from django_idempotency.monitoring.health import examine
from django_idempotency.monitoring.places import Place, list_places
from django_idempotency.monitoring.promises import PROMISES
from django_idempotency.monitoring.proof import Busy, prove

NEVER: Final = "never"
LISTED_BY: Final = {  # the arguments of idempotency_list that show the records of a finding
    Code.DEAD_LETTERS: "--status dead_letter",
    Code.UNATTENDED: "--status unknown",
    Code.UNKNOWN_OLD: "--status unknown --older-than 1h",
    Code.UNKNOWN_MANY: "--status unknown",
    Code.LEASE_OVERDUE: "--status in_progress,pending",
    Code.WORK_WAITING: "--status pending",
}


class Command(PackageCommand):
    help = "Report the problems of the live system. Exits with 1 if it finds any."
    section = "idempotency_doctor"
    examples: ClassVar[tuple[str, ...]] = (
        "",
        "--fail-on critical --ignore standbys-asynchronous",
        "--prove --host db2:5432 --dry-run",
    )
    exit_codes: ClassVar[dict[int, str]] = {
        0: "no problem is as severe as --fail-on",
        1: "a problem is that severe, or the database did not answer",
        2: "the arguments are wrong",
    }

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        add_json(parser, "the findings")
        codes = [code.value for code in Code]
        parser.add_argument(
            "--ignore",
            action="append",
            default=[],
            choices=codes,
            metavar="CODE",
            help="ignore findings with this code",
        )
        parser.add_argument(
            "--fail-on",
            choices=[*(each.value for each in Severity), NEVER],
            default=Severity.WARNING.value,
            help="exit with 1 from this severity on; warning by default",
        )
        parser.add_argument(
            "--prove", action="store_true", help="test whether the database keeps what this package relies on"
        )
        parser.add_argument(
            "--host", action="append", default=[], help="with --prove: also connect to this HOST or HOST:PORT"
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="with --prove: only print what would be tried, over which connections",
        )

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
            self._report(self._prove(using, places), "every promise holds", options)

    def _report(self, found: list[Finding], well: str, options: dict[str, Any]) -> None:
        found = [each for each in found if each.code not in options["ignore"]]
        problems = [each for each in found if not each.is_advice]
        if options["json"]:
            report = {"healthy": not problems, "findings": list(map(as_json, problems))}
            self.write_json({**report, "advice": [as_json(each) for each in found if each.is_advice]})
        else:
            if not problems:
                self.say(self.style.SUCCESS(well))
            self._write_findings(found)
        if failing := [each for each in found if each.severity.is_from(options["fail_on"])]:
            raise CommandError(count_findings(failing))

    def _write_findings(self, found: list[Finding]) -> None:
        styles = {
            Severity.CRITICAL: self.style.ERROR,
            Severity.WARNING: self.style.WARNING,
            Severity.ADVICE: self.style.NOTICE,
        }
        for each in found:
            severity = styles[each.severity](each.severity.value)
            self.say(f"{severity} {each.code.value}: {escape(describe_plainly(each))}")
            if each.code in LISTED_BY:
                self.say(f"    python manage.py idempotency_list {LISTED_BY[each.code]}")
            self.say(f"    {each.runbook or each.url}")

    def _prove(self, using: str, places: list[Place]) -> list[Finding]:
        try:
            return prove(using, places, self._write_progress if self.shows_progress else lambda name: None)
        except Busy as busy:
            raise CommandError(f"{busy.__doc__} Try again in a minute.", "busy") from busy

    def _write_progress(self, name: str) -> None:
        self.stderr.write(f"{name} …")

    def _write_plan(self, places: list[Place], options: dict[str, Any]) -> None:
        plan = {"connections": [place.host for place in places], "promises": list(PROMISES)}
        if options["json"]:
            self.write_json(plan)
        else:
            self.say("\n".join(f"{name}: {', '.join(planned)}" for name, planned in plan.items()))


def _examine(using: str) -> list[Finding]:
    try:
        return examine(using)
    except Error as error:
        return [Finding(Code.STORE_UNAVAILABLE, {"error": describe_failure(error)})]


def as_json(finding: Finding) -> dict[str, Any]:
    about = {"code": finding.code.value, "severity": finding.severity.value, "url": finding.url}
    if finding.runbook:
        about["runbook"] = finding.runbook
    return {**about, "text": describe_plainly(finding), **finding.values}


def count_findings(found: list[Finding]) -> str:
    """Return how many problems there are of each severity."""
    counts = {severity: sum(each.severity is severity for each in found) for severity in Severity}
    return f"Problems found: {len(found)} ({', '.join(f'{count} {name}' for name, count in counts.items() if count)})."
