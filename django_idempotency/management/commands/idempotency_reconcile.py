import getpass
from argparse import ArgumentParser
from typing import Any, ClassVar

from django_idempotency.console.actions import BY_NAME
from django_idempotency.management.base import CommandError, parse_text
from django_idempotency.management.decisions import carry_out_action
from django_idempotency.management.jobs import JobCommand
from django_idempotency.management.references import add_reference, find_target


class Command(JobCommand):
    job = "reconcile"
    examples: ClassVar[tuple[str, ...]] = (*JobCommand.examples, "REF --reason 'The customer calls'")

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        add_reference(parser, required=False)
        parser.add_argument(
            "--by",
            type=parse_text,
            default="",
            help="with REF: who asks, for the audit trail; by default the system's user",
        )
        parser.add_argument("--reason", type=parse_text, default="", help="with REF: why, for the audit trail")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["record"] is None:
            if options["by"] or options["reason"] or options["scope"]:
                raise CommandError("--by, --reason and --scope need REF.")
            super().handle(*args, **options)
            return
        who = {"by": options["by"].strip() or name_user(), "reason": options["reason"]}
        carry_out_action(self, BY_NAME["ask-reconciler"], find_target(options), options, **who)


def name_user() -> str:
    """Return the system's user; a container may have none with a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "idempotency_reconcile"
