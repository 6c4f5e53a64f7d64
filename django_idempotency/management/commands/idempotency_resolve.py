from argparse import ArgumentParser, ArgumentTypeError
from textwrap import fill
from typing import Any, ClassVar, Final

from django.utils.translation import override

from django_idempotency.console.actions import ACTIONS, Action
from django_idempotency.console.forms import LandedForm
from django_idempotency.core.replies import NO_BODY
from django_idempotency.management.base import CommandError, PackageCommand, add_database, add_json, parse_text
from django_idempotency.management.decisions import carry_out_action, describe_effect, find_refusal
from django_idempotency.management.references import Target, add_reference, find_target
from django_idempotency.management.tables import escape

AS_LANDED: Final = "mark as succeeded and store a response with this status; write your own missing rows first"
NO_BODY_GIVEN: Final = "Give the response's --body, or --body '' if it has none: every retry would get none."
OPTIONS: Final = {action.option: action for action in ACTIONS if action.option}


def parse_status(text: str) -> int:
    """Return the status of a response, or reject the argument."""
    if not (text.isdecimal() and 200 <= int(text) <= 599):
        raise ArgumentTypeError(f"{text!r} is not a response status; give one from 200 to 599.")
    return int(text)


class Command(PackageCommand):
    help = "Settle an unknown outcome by hand. The reason is kept in the audit trail."
    section = "idempotency_resolve"
    examples: ClassVar[tuple[str, ...]] = (
        "REF --not-executed --by ada --reason 'No charge at the provider' --dry-run",
        """REF --landed 201 --body '{"id": 7}' --by ada --reason 'Seen at the provider'""",
        "REF --try-again --by ada --reason 'The provider answers again' --noinput",
    )
    exit_codes: ClassVar[dict[int, str]] = {
        0: "the record was changed; with --dry-run, the change is possible",
        1: "nothing was changed; the message says which state was found, and what is possible",
        2: "the arguments are wrong",
    }

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_reference(parser)
        how = parser.add_mutually_exclusive_group(required=True)
        for option, action in OPTIONS.items():
            if action.form is LandedForm:
                how.add_argument(option, type=parse_status, metavar="STATUS", help=AS_LANDED)
            else:
                how.add_argument(option, action="store_true", help=str(action.sentence))
        parser.add_argument("--body", type=parse_text, help="with --landed: the response body; '' if it has none")
        parser.add_argument(
            "--content-type",
            type=parse_text,
            default="application/json",
            help="with --landed: the body's content type; application/json by default",
        )
        parser.add_argument("--by", type=parse_text, required=True, help="who decides, for the audit trail")
        parser.add_argument("--reason", type=parse_text, required=True, help="why, for the audit trail")
        add_database(parser)
        parser.add_argument("--dry-run", action="store_true", help="only print what would happen")
        parser.add_argument(
            "--noinput", "--no-input", action="store_false", dest="interactive", help="do not ask for confirmation"
        )
        add_json(parser, "the outcome")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["by"].strip() or not options["reason"].strip():
            raise CommandError("--by and --reason are kept in the audit trail and must not be empty.")
        action = next(each for option, each in OPTIONS.items() if options[option[2:].replace("-", "_")])
        given = read_response(options) if options["landed"] else {}
        target = find_target(options)
        if options["interactive"] and self.is_dialogue and not options["dry_run"]:
            self._confirm(action, target, given)
        carry_out_action(self, action, target, options, **given, by=options["by"], reason=options["reason"])

    def _confirm(self, action: Action, target: Target, given: dict[str, Any]) -> None:
        with override("en"):
            risk, refusal = str(action.risk), find_refusal(action, target)
        self.say(f"{escape(target.row.operation)} {target.row.id}, `{target.row.status}`")
        self.say(fill(describe_effect(action, target, **given), self.width))
        self.say(self.style.WARNING(fill(f"This will be refused: {refusal}" if refusal else risk, self.width)))
        if input("Type 'yes' to do it: ") != "yes":
            raise CommandError("Nothing was changed.", "cancelled")


def read_response(options: dict[str, Any]) -> dict[str, Any]:
    """Return the response that the options describe, checked by the admin's form."""
    body = options["body"] or ""
    if options["body"] is None and options["landed"] not in NO_BODY:
        raise CommandError(NO_BODY_GIVEN)
    form = LandedForm({**options, "body": body, "status": options["landed"]})
    if not form.is_valid():
        problems = [(name.replace("_", "-"), text) for name, each in form.errors.items() for text in each]
        raise CommandError(" ".join(f"--{option}: {text}" for option, text in problems))
    return {"status": options["landed"], "content_type": options["content_type"], "body": body}
