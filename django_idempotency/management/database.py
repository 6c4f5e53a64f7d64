"""The database whose records a command is about."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from django_idempotency.store.database import alias


def add_database(parser: ArgumentParser) -> None:
    parser.add_argument("--database", default=None, help="the database of the records; the router's by default")


def database(options: dict[str, Any]) -> str:
    if options["database"] not in (None, *connections):
        raise CommandError(f"--database must be one of {', '.join(connections)}.")
    return options["database"] or alias()
