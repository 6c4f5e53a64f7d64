"""A table of records in a schema of its own, as migrated, to which no foreign key leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from django.core.management import call_command
from django.db import connection

from tests.kit.databases import default_database

SCHEMA = "laid_out"


def searching(*schemas: str) -> AbstractContextManager[None]:
    return default_database(
        OPTIONS={**connection.settings_dict["OPTIONS"], "options": f"-c search_path={','.join(schemas)}"}
    )


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def migrated(vendor: str) -> Iterator[None]:
    if vendor != "postgresql":
        pytest.skip("the layout of PostgreSQL's tables")
    drop = f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"
    execute(drop, f"CREATE SCHEMA {SCHEMA}")
    with searching(SCHEMA):
        call_command("migrate", "django_idempotency", verbosity=0)
    with searching(SCHEMA, "public"):
        yield
        execute(drop)
