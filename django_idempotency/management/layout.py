"""The commands that change how PostgreSQL lays out the records."""

from abc import abstractmethod
from argparse import ArgumentParser
from typing import Any, ClassVar

from django.db import connections

from django_idempotency.management.base import CommandError, PackageCommand, add_database, choose_database
from django_idempotency.store.layout import Change, Refused


class LayoutCommand(PackageCommand):
    """Shows the SQL first if asked to, and asks a person."""

    examples: ClassVar[tuple[str, ...]] = ("--dry-run", "--noinput", "--reverse")

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--dry-run", action="store_true", help="only print the SQL")
        parser.add_argument(
            "--json", action="store_true", help="print the result as JSON, and do not ask for confirmation"
        )
        parser.add_argument(
            "--noinput", "--no-input", action="store_false", dest="interactive", help="do not ask for confirmation"
        )

    @abstractmethod
    def plan(self, using: str, options: dict[str, Any]) -> Change:
        """Return what is to be changed. Refused if nothing is, or if it cannot be."""

    def handle(self, *args: Any, **options: Any) -> None:
        using = choose_database(options)
        vendor = connections[using].vendor
        if vendor != "postgresql":
            raise CommandError(
                f"The database {using!r} is {vendor}: only PostgreSQL can change the layout of the table."
            )
        try:
            change = self.plan(using, options)
            if options["dry_run"]:
                self._write_statements(change.list_statements(), options)
                return
            if options["interactive"] and not options["json"]:
                self._confirm(using)
            result = change.run(self._write_progress if self.shows_progress else lambda text: None)
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        if options["json"]:
            self.write_json(result)
        else:
            self.say(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in result.items()))

    def _confirm(self, using: str) -> None:
        name = connections[using].settings_dict["NAME"]
        if input(f"This lays out the records of the database {name} anew. Type 'yes' to begin: ") != "yes":
            raise CommandError("Nothing was changed.")

    def _write_statements(self, statements: list[str], options: dict[str, Any]) -> None:
        if options["json"]:
            self.write_json({"statements": statements})
        else:
            self.say("\n".join(f"{statement};" for statement in statements))

    def _write_progress(self, text: str) -> None:
        self.stderr.write(f"{text} …")
