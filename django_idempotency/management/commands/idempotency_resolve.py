import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from django_idempotency.console.forms import LandedForm
from django_idempotency.core.replies import Reply
from django_idempotency.flow.resolve import find_record, resolve, try_again
from django_idempotency.flow.settle import Landed, NotLanded, Outcome
from django_idempotency.management.base import StoreCommand, add_database, choose_database, parse_text

DONE = (Outcome.LANDED, Outcome.NOT_EXECUTED, Outcome.RESUMABLE, Outcome.ASKED)

AS_LANDED = "it happened; store a response with this status. Makes no domain writes: make missing ones first"
MESSAGES = {
    Outcome.LANDED: "landed: the response is stored. No domain writes were made: check your own tables.",
    Outcome.RESUMABLE: "resumable: the resumer or the next retry continues the operation from its step.",
}


def parse_status(text: str) -> int:
    """Return the status of a response, or reject the argument."""
    if not (text.isdecimal() and 200 <= int(text) <= 599):
        raise ArgumentTypeError(f"{text!r} is not a response status; give one from 200 to 599.")
    return int(text)


class Command(StoreCommand):
    help = "Settle an unknown outcome by hand. The reason is kept in the audit trail."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", type=parse_text, help="a record's id or a downstream key")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--landed", type=parse_status, metavar="STATUS", help=AS_LANDED)
        how.add_argument(
            "--not-executed", action="store_true", help="it did not happen; rejected until the grace period has passed"
        )
        how.add_argument("--try-again", action="store_true", help="reset the reconciler's tries and retry")
        parser.add_argument("--body", type=parse_text, default="", help="with --landed: the response body")
        parser.add_argument(
            "--content-type", type=parse_text, default="application/json", help="with --landed: the body's content type"
        )
        parser.add_argument("--by", type=parse_text, required=True, help="who decides")
        parser.add_argument("--reason", type=parse_text, required=True, help="why")
        add_database(parser)
        parser.add_argument("--dry-run", action="store_true", help="only show the record's status")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"]:
            self._show_status(options)
            return
        if not options["by"].strip() or not options["reason"].strip():
            raise CommandError("--by and --reason are kept in the audit trail and must not be empty.")
        outcome = self._settle(options)
        text = MESSAGES.get(outcome, outcome.replace("_", " "))
        self.stdout.write(json.dumps({"outcome": outcome}) if options["json"] else text)
        if outcome not in DONE:
            raise CommandError(
                f"The record was not changed: {outcome.replace('_', ' ')}. {self._explain(outcome, options)}"
            )

    def _explain(self, outcome: Outcome, options: dict[str, Any]) -> str:
        row = find_record(options["record"], choose_database(options))
        if row is None:
            return "No record has this id or downstream key. For a client's key, find the id with idempotency_inspect."
        if outcome is Outcome.POSTPONED:
            return f"The grace period ends at {row.grace_until}; until then a message may still be in flight."
        return f"Its status is {row.status.replace('_', ' ')}, or another step than this one is in doubt."

    def _show_status(self, options: dict[str, Any]) -> None:
        row = find_record(options["record"], choose_database(options))
        status = row.status if row is not None else Outcome.ABSENT.value
        self.stdout.write(json.dumps({"status": status}) if options["json"] else status.replace("_", " "))

    def _settle(self, options: dict[str, Any]) -> Outcome:
        using = choose_database(options)
        who = {"by": options["by"], "reason": options["reason"], "using": using}
        if options["try_again"]:
            return try_again(options["record"], **who)
        if options["not_executed"]:
            return resolve(options["record"], NotLanded(), operator=True, **who)
        return resolve(options["record"], Landed(read_reply(options), ends_operation=True), operator=True, **who)


def read_reply(options: dict[str, Any]) -> Reply:
    """Return the response that the options describe, checked by the admin's form."""
    form = LandedForm({**options, "status": options["landed"]})
    if not form.is_valid():
        problems = [(name.replace("_", "-"), text) for name, each in form.errors.items() for text in each]
        raise CommandError(" ".join(f"--{option}: {text}" for option, text in problems))
    headers = (("Content-Type", options["content_type"]),) if options["body"] else ()
    return Reply(status=options["landed"], headers=headers, body=options["body"].encode())
