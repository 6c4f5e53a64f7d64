import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_idempotency.claiming import alias
from django_idempotency.core.replies import NO_BODY, Reply
from django_idempotency.reconciliation import Landed, NotExecuted, Outcome
from django_idempotency.resolution import find_record, resolve, try_again

DONE = (Outcome.LANDED, Outcome.NOT_EXECUTED, Outcome.RESUMABLE, Outcome.ASKED)

LANDED = "it happened; the answer has this status. Makes no domain writes: make those that are missing first"
SAID = {
    Outcome.LANDED: "landed: the answer is stored. No domain writes were made: see that what happened is booked.",
    Outcome.RESUMABLE: "resumable: the operation goes on from its step, with the resumer or the next retry.",
}


def status(text: str) -> int:
    """The status of an answer that a client can be given."""
    if not (text.isdecimal() and 200 <= int(text) <= 599):
        raise ArgumentTypeError(f"{text!r} is no status of an answer; give one from 200 to 599.")
    return int(text)


class Command(BaseCommand):
    help = "Settle a doubt by hand. The reason is kept in the audit trail."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", help="a record's id or a derived key")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--landed", type=status, metavar="STATUS", help=LANDED)
        how.add_argument(
            "--not-executed", action="store_true", help="it did not happen; refused before grace has passed"
        )
        how.add_argument("--try-again", action="store_true", help="give the reconciler all its tries once more")
        parser.add_argument("--body", default="", help="with --landed: the answer's body")
        parser.add_argument("--content-type", default="application/json", help="with --landed: the body's type")
        parser.add_argument("--by", required=True, help="who says so")
        parser.add_argument("--reason", required=True, help="why")
        parser.add_argument("--database", default=None, help="the database of the records; the router's by default")
        parser.add_argument("--dry-run", action="store_true", help="only say where the record stands")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"]:
            self._say_where_it_stands(options)
            return
        outcome = self._outcome(options)
        said = SAID.get(outcome, outcome.replace("_", " "))
        self.stdout.write(json.dumps({"outcome": outcome}) if options["json"] else said)
        if outcome not in DONE:
            raise CommandError(f"The record was not changed: {outcome.replace('_', ' ')}.")

    def _say_where_it_stands(self, options: dict[str, Any]) -> None:
        row = find_record(options["record"], options["database"] or alias())
        status = row.status if row is not None else Outcome.ABSENT.value
        self.stdout.write(json.dumps({"status": status}) if options["json"] else status.replace("_", " "))

    def _outcome(self, options: dict[str, Any]) -> Outcome:
        using = options["database"] or alias()
        who = {"by": options["by"], "reason": options["reason"], "using": using}
        if options["try_again"]:
            return try_again(options["record"], **who)
        if options["not_executed"]:
            return resolve(options["record"], NotExecuted(), operator=True, **who)
        if options["body"] and options["landed"] in NO_BODY:
            raise CommandError(f"An answer of {options['landed']} has no body: leave --body out.")
        headers = (("Content-Type", options["content_type"]),) if options["body"] else ()
        reply = Reply(status=options["landed"], headers=headers, body=options["body"].encode())
        return resolve(options["record"], Landed(reply), operator=True, **who)
