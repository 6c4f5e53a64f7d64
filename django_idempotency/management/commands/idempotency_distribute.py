from argparse import ArgumentParser
from typing import Any

from django_idempotency.management.layout import LayoutCommand
from django_idempotency.store.distribution import plan_distribution
from django_idempotency.store.layout import Change


class Command(LayoutCommand):
    section = "idempotency_distribute"
    help = "Distribute the records' table over the nodes of Citus, by scope, while requests use it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--colocate-with", default="default", metavar="TABLE", help="keep the shards beside those of this table"
        )
        how.add_argument("--reverse", action="store_true", help="move the table back to the coordinator")

    def plan(self, using: str, options: dict[str, Any]) -> Change:
        return plan_distribution(
            using,
            colocate_with=options["colocate_with"],
            reverse=options["reverse"],
            dry_run=options["dry_run"],
        )
