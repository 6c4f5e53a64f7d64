"""`idempotency_distribute`, and what both layout commands refuse. Citus itself answers at CITUS_URL, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_idempotency.models import IdempotencyKey
from django_idempotency.store import layout
from testproject.databases import from_url
from testproject.servers import ROOT
from tests.kit.databases import default_database
from tests.kit.records import completed
from tests.management.conftest import SCHEMA, execute, searching

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

TABLE = f"{SCHEMA}.idempotency_key"
INDEX = "idempotency_key_new_pkey"
FORTH = [
    f"DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}.{INDEX}",
    f"CREATE UNIQUE INDEX CONCURRENTLY {INDEX} ON {TABLE} (id, scope)",
    f"ALTER TABLE {TABLE} DROP CONSTRAINT idempotency_key_pkey,"
    f" ADD CONSTRAINT idempotency_key_pkey PRIMARY KEY USING INDEX {INDEX}",
]
DISTRIBUTE = f"SELECT create_distributed_table_concurrently('{TABLE}', 'scope', colocate_with => '{{}}')"


def distribute(*arguments: str) -> str:
    output = StringIO()
    call_command("idempotency_distribute", "--noinput", *arguments, stdout=output)
    return output.getvalue().strip()


def primary_key() -> str:
    return layout.read_layout("default").primary_key


@pytest.mark.usefixtures("migrated")
def test_a_dry_run_needs_no_citus() -> None:
    assert json.loads(distribute("--dry-run", "--json")) == {"statements": [*FORTH, DISTRIBUTE.format("default")]}
    text = distribute("--dry-run", "--colocate-with=shop's orders")
    assert text.splitlines()[-1] == DISTRIBUTE.format("shop''s orders") + ";"
    assert primary_key() == "PRIMARY KEY (id)"


@pytest.mark.usefixtures("migrated")
def test_without_citus() -> None:
    with pytest.raises(CommandError, match="does not have the extension citus"):
        distribute()


@pytest.mark.usefixtures("migrated")
def test_what_cannot_be_distributed() -> None:
    with pytest.raises(CommandError, match="idempotency_key is not distributed already"):
        distribute("--reverse", "--dry-run")
    execute("CREATE TABLE payment (record uuid REFERENCES idempotency_key (id))")
    with pytest.raises(CommandError, match=r"Foreign key constraints of payment .* db_constraint=False"):
        distribute("--dry-run")
    execute("DROP TABLE payment")
    call_command("idempotency_partition", "--noinput", "--partitions=2", stdout=StringIO())
    with pytest.raises(CommandError, match="run idempotency_partition --reverse first"):
        distribute("--dry-run")


@pytest.fixture
def imitation(migrated: None) -> Iterator[None]:
    """Says that it is Citus, and takes its calls down. The primary key is changed for real."""
    execute(
        "CREATE SCHEMA imitation",
        "CREATE VIEW imitation.pg_extension AS SELECT 'citus' AS extname",
        "CREATE TABLE imitation.pg_dist_partition (logicalrelid oid, partmethod text)",
        "CREATE FUNCTION imitation.create_distributed_table_concurrently(t regclass, c text, colocate_with text)"
        " RETURNS void LANGUAGE sql AS $$ INSERT INTO imitation.pg_dist_partition VALUES (t, 'h') $$",
        "CREATE FUNCTION imitation.undistribute_table(t regclass)"
        " RETURNS void LANGUAGE sql AS $$ DELETE FROM imitation.pg_dist_partition $$",
    )
    with searching("imitation", SCHEMA, "public", "pg_catalog"):
        yield
    execute("DROP SCHEMA imitation CASCADE")


@pytest.mark.usefixtures("imitation")
def test_it_does_what_is_left_to_do() -> None:
    attempt = completed()
    said = json.loads(distribute("--json"))
    assert said == {"primary_key": "PRIMARY KEY (id, scope)", "statements": 4}
    with pytest.raises(CommandError, match="idempotency_key is distributed already"):
        distribute()
    execute("DELETE FROM imitation.pg_dist_partition")
    assert json.loads(distribute("--dry-run", "--json")) == {"statements": [DISTRIBUTE.format("default")]}
    distribute()
    assert distribute("--reverse") == "primary key: PRIMARY KEY (id), statements: 4"
    assert IdempotencyKey.objects.get().id == attempt.call.id
    with pytest.raises(CommandError, match="is not distributed already"):
        distribute("--reverse")


@pytest.mark.usefixtures("imitation")
def test_a_run_that_was_stopped_in_the_middle() -> None:
    """Its index may be one that PostgreSQL did not finish."""
    execute(f"CREATE INDEX {INDEX} ON idempotency_key (status)")
    distribute()
    assert primary_key() == "PRIMARY KEY (id, scope)"
    execute(f"CREATE INDEX {INDEX} ON idempotency_key (status)")
    distribute("--reverse")
    assert primary_key() == "PRIMARY KEY (id)"


@pytest.fixture
def citus() -> Iterator[None]:
    """A database of its own on a real coordinator, which has the extension."""
    if "CITUS_URL" not in os.environ:
        pytest.skip("NOT TESTED: needs Citus at CITUS_URL, a database that may be emptied")
    settings: dict[str, Any] = from_url(os.environ["CITUS_URL"], base=ROOT)
    with default_database(**settings):
        call_command("migrate", "django_idempotency", verbosity=0)
        IdempotencyKey.objects.all().delete()
        yield
        IdempotencyKey.objects.all().delete()


@pytest.mark.usefixtures("citus")
def test_on_citus() -> None:
    attempt = completed()
    distribute()
    call_command("idempotency_doctor", "--prove", "--json", stdout=StringIO())
    assert IdempotencyKey.objects.get().id == attempt.call.id
    distribute("--reverse")
    assert primary_key() == "PRIMARY KEY (id)"
    assert IdempotencyKey.objects.get().id == attempt.call.id


@pytest.mark.parametrize("command", ["idempotency_partition", "idempotency_distribute"])
def test_another_database_than_postgresql(command: str, vendor: str) -> None:
    if vendor == "postgresql":
        pytest.skip("that is PostgreSQL")
    with pytest.raises(CommandError, match=f"'default' is {vendor}: only PostgreSQL can change the layout"):
        call_command(command, "--noinput")


def test_a_table_to_which_a_foreign_key_leads(vendor: str) -> None:
    """The payments service has one."""
    if vendor != "postgresql":
        pytest.skip("the layout of PostgreSQL's tables")
    for command in ("idempotency_partition", "idempotency_distribute"):
        with pytest.raises(CommandError, match="Foreign key constraints of payments_payment lead to idempotency_key"):
            call_command(command, "--dry-run")
