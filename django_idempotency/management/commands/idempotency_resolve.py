import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_idempotency.console.forms import LandedForm
from django_idempotency.core.replies import Reply
from django_idempotency.flow.resolve import find_record, resolve, try_again
from django_idempotency.flow.settle import Landed, NotLanded, Outcome
from django_idempotency.management.base import add_database, database, words

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
        parser.add_argument("record", type=words, help="a record's id or a derived key")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--landed", type=status, metavar="STATUS", help=LANDED)
        how.add_argument(
            "--not-executed", action="store_true", help="it did not happen; refused before grace has passed"
        )
        how.add_argument("--try-again", action="store_true", help="give the reconciler all its tries once more")
        parser.add_argument("--body", type=words, default="", help="with --landed: the answer's body")
        parser.add_argument(
            "--content-type", type=words, default="application/json", help="with --landed: the body's type"
        )
        parser.add_argument("--by", type=words, required=True, help="who says so")
        parser.add_argument("--reason", type=words, required=True, help="why")
        add_database(parser)
        parser.add_argument("--dry-run", action="store_true", help="only say where the record stands")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"]:
            self._say_where_it_stands(options)
            return
        if not options["by"].strip() or not options["reason"].strip():
            raise CommandError("--by and --reason are kept in the audit trail: neither may be empty.")
        outcome = self._outcome(options)
        said = SAID.get(outcome, outcome.replace("_", " "))
        self.stdout.write(json.dumps({"outcome": outcome}) if options["json"] else said)
        if outcome not in DONE:
            raise CommandError(
                f"The record was not changed: {outcome.replace('_', ' ')}. {self._why(outcome, options)}"
            )

    def _why(self, outcome: Outcome, options: dict[str, Any]) -> str:
        row = find_record(options["record"], database(options))
        if row is None:
            return "No record has this id or derived key; for a client's key ask idempotency_inspect."
        if outcome is Outcome.POSTPONED:
            return f"Grace ends at {row.grace_until}: until then a message of it may still be on its way."
        return f"It is {row.status.replace('_', ' ')}, or what was said is about another step than the one in doubt."

    def _say_where_it_stands(self, options: dict[str, Any]) -> None:
        row = find_record(options["record"], database(options))
        status = row.status if row is not None else Outcome.ABSENT.value
        self.stdout.write(json.dumps({"status": status}) if options["json"] else status.replace("_", " "))

    def _outcome(self, options: dict[str, Any]) -> Outcome:
        using = database(options)
        who = {"by": options["by"], "reason": options["reason"], "using": using}
        if options["try_again"]:
            return try_again(options["record"], **who)
        if options["not_executed"]:
            return resolve(options["record"], NotLanded(), operator=True, **who)
        return resolve(options["record"], Landed(entered(options)), operator=True, **who)


def entered(options: dict[str, Any]) -> Reply:
    """The answer that was typed, under the rules of the admin's form."""
    form = LandedForm({**options, "status": options["landed"]})
    if not form.is_valid():
        raise CommandError(" ".join(f"--{name}: {said}" for name, each in form.errors.items() for said in each))
    headers = (("Content-Type", options["content_type"]),) if options["body"] else ()
    return Reply(status=options["landed"], headers=headers, body=options["body"].encode())
