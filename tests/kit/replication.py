"""A primary with the tables of this run's project, and a standby that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command

from testproject import replication
from testproject.replication import PostgreSQL, user
from tests.kit.databases import default_database

__all__ = ["PostgreSQL", "primary_and_standby", "user"]


@contextmanager
def primary_and_standby() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """The standby follows at once, and asynchronously, until a test says otherwise. It is called `standby`."""

    def migrate(primary: PostgreSQL) -> None:
        with default_database(**primary.settings()):
            call_command("migrate", verbosity=0)

    with replication.primary_and_standby(migrate) as servers:
        yield servers
