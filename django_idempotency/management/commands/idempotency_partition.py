from argparse import ArgumentParser
from typing import Any

from django_idempotency.management.base import CommandError
from django_idempotency.management.layout import LayoutCommand
from django_idempotency.store.layout import Change
from django_idempotency.store.partitions import plan_partitions

_MOST = 1024


class Command(LayoutCommand):
    section = "idempotency_partition"
    help = "Partition the records' table by HASH (scope), while requests use it. PostgreSQL only."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--partitions", type=int, default=16, help="how many partitions, from 2 to 1024; 16 by default"
        )
        how.add_argument("--reverse", action="store_true", help="make a plain table again, or undo an unfinished run")

    def plan(self, using: str, options: dict[str, Any]) -> Change:
        if not 2 <= options["partitions"] <= _MOST:
            raise CommandError(f"--partitions must be at least 2, and {_MOST} at most.")
        return plan_partitions(using, 0 if options["reverse"] else options["partitions"])
