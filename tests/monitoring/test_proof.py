"""`idempotency_doctor --prove` on layouts that hold, and on layouts that do not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.monitoring.promises import PROMISES, _call
from django_idempotency.store import claims
from tests.kit.databases import default_database, nobody_answers, sessions
from tests.kit.records import age, claimed, completed
from tests.kit.replication import PostgreSQL
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.vendor]

KEYS = "ADD PRIMARY KEY (id), ADD UNIQUE (key, scope)"
COLUMNS = "(LIKE public.idempotency_key INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
FUNCTION = "CREATE FUNCTION react() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$"
TRIGGER = "CREATE TRIGGER react {} ON idempotency_key FOR EACH ROW EXECUTE FUNCTION react()"

LAYOUTS = {
    "postgresql": {
        "partitions by scope": [
            f"CREATE TABLE idempotency_key {COLUMNS} PARTITION BY HASH (scope)",
            *(
                f"CREATE TABLE part{number} PARTITION OF idempotency_key"
                f" FOR VALUES WITH (MODULUS 4, REMAINDER {number})"
                for number in range(4)
            ),
            "ALTER TABLE idempotency_key ADD PRIMARY KEY (scope, id), ADD UNIQUE (key, scope)",
        ],
        "no constraint": [f"CREATE TABLE idempotency_key {COLUMNS}"],
        "partitions by time": [
            f"CREATE TABLE idempotency_key {COLUMNS} PARTITION BY RANGE (created_at)",
            "CREATE TABLE part PARTITION OF idempotency_key DEFAULT",
            "ALTER TABLE idempotency_key ADD PRIMARY KEY (id, created_at), ADD UNIQUE (key, scope, created_at)",
        ],
        "a trigger that swallows": [
            f"CREATE TABLE idempotency_key {COLUMNS}",
            f"ALTER TABLE idempotency_key {KEYS}",
            FUNCTION.format("RETURN NULL"),
            TRIGGER.format("BEFORE INSERT"),
        ],
        # As an engine that distributes rows and counts those it did not insert: each duplicate looks like a winner.
        "counts that lie": [
            f"CREATE TABLE stored {COLUMNS}",
            f"ALTER TABLE stored {KEYS}",
            "CREATE VIEW idempotency_key AS SELECT * FROM stored",
            """
            DO $$ DECLARE each record; BEGIN
                FOR each IN SELECT column_name, column_default FROM information_schema.columns
                    WHERE table_schema = 'layout' AND table_name = 'stored' AND column_default IS NOT NULL
                LOOP EXECUTE FORMAT('ALTER VIEW idempotency_key ALTER %I SET DEFAULT %s',
                                    each.column_name, each.column_default);
                END LOOP;
            END $$
            """,
            FUNCTION.format("INSERT INTO stored VALUES (NEW.*) ON CONFLICT DO NOTHING; RETURN NEW"),
            TRIGGER.format("INSTEAD OF INSERT"),
        ],
        "a trigger that changes bodies": [
            f"CREATE TABLE idempotency_key {COLUMNS}",
            f"ALTER TABLE idempotency_key {KEYS}",
            FUNCTION.format("NEW.response_body := 'other'; RETURN NEW"),
            TRIGGER.format("BEFORE UPDATE"),
        ],
        "a trigger that keeps rows": [
            f"CREATE TABLE idempotency_key {COLUMNS}",
            f"ALTER TABLE idempotency_key {KEYS}",
            FUNCTION.format("RETURN NULL"),
            TRIGGER.format("BEFORE DELETE"),
        ],
        "a column that is computed": [
            f"CREATE TABLE idempotency_key {COLUMNS}",
            f"ALTER TABLE idempotency_key {KEYS}",
            "ALTER TABLE idempotency_key DROP recovery_point,"
            " ADD recovery_point text NOT NULL GENERATED ALWAYS AS ('') STORED",
        ],
    },
    "mysql": {
        "no constraint": [
            "ALTER TABLE idempotency_key DROP PRIMARY KEY, DROP INDEX idempotency_key_scope_key",
        ],
        "partitions by time": [
            "ALTER TABLE idempotency_key DROP PRIMARY KEY, DROP INDEX idempotency_key_scope_key,"
            " ADD PRIMARY KEY (id, created_at)",
            "ALTER TABLE idempotency_key PARTITION BY RANGE COLUMNS (created_at)"
            " (PARTITION part VALUES LESS THAN (MAXVALUE))",
        ],
        "no transactions": ["ALTER TABLE idempotency_key ENGINE = MyISAM"],
    },
}


@pytest.fixture
def lay_out(vendor: str, request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Gives the default alias a table of another layout, beside the one that is there."""
    if request.node.callspec.params["name"] not in LAYOUTS.get(vendor, {}):
        pytest.skip("no layout of this database")
    settings = connection.settings_dict
    if vendor == "postgresql":
        changes: dict[str, Any] = {"OPTIONS": {**settings["OPTIONS"], "options": "-c search_path=layout,public"}}
        begin, copies = "CREATE SCHEMA layout", list[str]()
        end = ["SET client_min_messages = error", "DROP SCHEMA IF EXISTS layout CASCADE"]
    else:
        name = f"{settings['NAME']}_layout"
        changes = {"NAME": name}
        begin = f"CREATE DATABASE {name} CHARACTER SET utf8mb4"
        tables = connection.introspection.table_names()
        copies = [f"CREATE TABLE {table} LIKE {settings['NAME']}.{table}" for table in tables]
        end = [f"DROP DATABASE IF EXISTS {name}"]
    execute(*end, begin)
    with default_database(**changes):
        execute(*copies)
        yield lambda name: execute(*LAYOUTS[vendor][name])
        execute(*end)


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def prove(*hosts: str) -> dict[str, str]:
    """The promises that do not hold, and why."""
    output = StringIO()
    over = [f"--host={host}" for host in hosts]
    try:
        call_command("idempotency_doctor", "--prove", "--json", *over, stdout=output)
    except CommandError:
        if not output.getvalue():
            raise
    said = json.loads(output.getvalue())
    assert said["healthy"] is not bool(said["findings"])
    assert {each["code"] for each in said["findings"]} <= {"promise-broken"}
    return {each["promise"]: each["reason"] for each in said["findings"]}


def test_a_database_that_holds_is_left_as_it_was(vendor: str) -> None:
    kept = {completed().call.id, claimed().call.id}
    before = sessions()
    output = StringIO()
    call_command("idempotency_doctor", "--prove", stdout=output)
    assert output.getvalue().strip() == "every promise holds"
    assert set(IdempotencyKey.objects.values_list("id", flat=True)) == kept
    assert not IdempotencyEvent.objects.exists()
    wait_until(lambda: sessions() <= before)


@pytest.mark.parametrize("name", ["partitions by scope"])
def test_a_layout_that_holds(lay_out: Callable[[str], None], name: str) -> None:
    lay_out(name)
    assert prove() == {}


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("no constraint", {"one_winner", "atomic"}),
        ("partitions by time", {"one_winner", "atomic"}),
        ("counts that lie", {"one_winner", "atomic"}),
        ("a trigger that swallows", set(PROMISES) - {"statements"}),
        ("a trigger that changes bodies", {"replay", "lease"}),
        ("a trigger that keeps rows", {"reaping"}),
        ("a column that is computed", {"statements"}),
        ("no transactions", {"transactions"}),
    ],
)
def test_a_layout_that_does_not_hold(lay_out: Callable[[str], None], name: str, broken: set[str]) -> None:
    lay_out(name)
    found = prove()
    assert set(found) == broken
    if "atomic" in broken and "lease" not in broken:
        assert found["one_winner"] == "2 of 2 connections that claimed one key won it."
    assert IdempotencyKey.objects.exists() is (name == "a trigger that keeps rows")


LEVELS = {
    "postgresql": {"REPEATABLE READ": {"lease"}, "SERIALIZABLE": {"lease"}},
    "mysql": {"READ UNCOMMITTED": {"transactions"}, "REPEATABLE READ": set()},
    "sqlite": {},
}


@pytest.mark.parametrize("level", ["READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_another_isolation_level(level: str, vendor: str) -> None:
    if level not in LEVELS[vendor]:
        pytest.skip("no level of this database, or one under which it waits for locks until they time out")
    named: Any = psycopg.IsolationLevel[level.replace(" ", "_")] if vendor == "postgresql" else level.lower()
    with default_database(OPTIONS={**connection.settings_dict["OPTIONS"], "isolation_level": named}):
        assert set(prove()) == LEVELS[vendor][level]


@pytest.mark.processes
@pytest.mark.usefixtures("primary")
def test_a_primary_holds() -> None:
    assert prove() == {}


@pytest.mark.processes
def test_a_host_that_reads_late(standby: PostgreSQL) -> None:
    with standby.configured(recovery_min_apply_delay="'1h'"):
        found = prove(standby.host)
    assert found["seen_everywhere"] == f"{standby.host} does not see what was committed at 127.0.0.1."
    assert found["replay"] == f"{standby.host}: a repeat is not given the stored response."
    assert "read-only transaction" in found["one_winner"]
    assert "transactions" not in found, "it is late, but it shows nothing that is not committed"


@pytest.mark.processes
def test_a_host_whose_clock_is_wrong(primary: PostgreSQL, standby: PostgreSQL) -> None:
    execute(
        "CREATE SCHEMA wrong",
        "CREATE FUNCTION wrong.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE"
        " AS $$ SELECT pg_catalog.statement_timestamp() + interval '1 hour' $$",
    )
    with (
        primary.configured(synchronous_standby_names="standby", synchronous_commit="remote_apply"),
        standby.configured(search_path="wrong, public, pg_catalog"),
    ):
        found = prove(standby.host)
    assert re.fullmatch(r"The clocks of the hosts are 360\d\.\d s apart\.", found["seen_everywhere"])


@pytest.mark.processes
def test_commits_that_wait_for_a_standby_that_is_gone(primary: PostgreSQL, settings: Any) -> None:
    """The proof comes to its end, which no COMMIT does."""
    settings.IDEMPOTENCY = {"CLAIM_LIMIT": 0.1}
    with primary.configured(synchronous_standby_names="gone"):
        assert set(prove()) == set(PROMISES) - {"statements"}


def test_one_host_under_two_names(vendor: str) -> None:
    host, port = connection.settings_dict["HOST"], connection.settings_dict["PORT"]
    if vendor == "sqlite":
        pytest.skip("a file has no host")
    assert prove(f"{host}:{port}", host) == {}


def test_a_host_that_is_not_there(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("a file has no host")
    found = prove("127.0.0.1:1")
    assert found["one_winner"].startswith("127.0.0.1:1: ")
    assert "transactions" in found


@pytest.mark.parametrize("locked", [True, False])
def test_what_a_proof_left_that_was_killed(locked: bool) -> None:
    """Its records are deleted when their leases are over; until then it may still be running."""
    call = _call("fence")
    assert claims.insert_claim(call, uuid4(), "default", None, namespace="doctor") is None
    if locked:
        with pytest.raises(CommandError, match="Another proof is running"):
            call_command("idempotency_doctor", "--prove")
        return
    age(call, "locked_until")
    assert prove() == {}
    assert not IdempotencyKey.objects.exists()


def test_a_server_that_only_reads(vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip("PostgreSQL's option")
    options = {**connection.settings_dict["OPTIONS"], "options": "-c default_transaction_read_only=on"}
    with (
        default_database(OPTIONS=options),
        pytest.raises(CommandError, match="did not answer, or reported an error: InternalError: cannot execute DELETE"),
    ):
        call_command("idempotency_doctor", "--prove")


def test_a_database_that_is_away() -> None:
    with nobody_answers(), pytest.raises(CommandError, match="The database did not answer, or reported an error: Oper"):
        call_command("idempotency_doctor", "--prove")


def test_a_dry_run_says_what_would_be_tried(vendor: str) -> None:
    with nobody_answers():
        text, data = (
            said("--dry-run", *form, *(["--host=db2:5433"] if vendor != "sqlite" else [])) for form in ([], ["--json"])
        )
    plan = json.loads(data)
    assert plan["promises"] == list(PROMISES)
    assert len(plan["connections"]) == (2 if vendor == "sqlite" else 3)
    assert text == f"connections: {', '.join(plan['connections'])}\npromises: {', '.join(PROMISES)}"


def said(*arguments: str) -> str:
    output = StringIO()
    call_command("idempotency_doctor", "--prove", *arguments, stdout=output)
    return output.getvalue().strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host=db2"], "--host and --dry-run need --prove"),
        (["--dry-run"], "--host and --dry-run need --prove"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("idempotency_doctor", *arguments)


@pytest.mark.parametrize("host", ["/var/run", "db2:port", ""])
def test_a_host_that_cannot_be_parsed_is_an_error(host: str, vendor: str) -> None:
    expected = "SQLite has no hosts" if vendor == "sqlite" else f"'{host}' is not HOST or HOST:PORT"
    with pytest.raises(CommandError, match=f"--host: {expected}"):
        call_command("idempotency_doctor", "--prove", f"--host={host}")


def test_a_person_sees_how_far_it_is() -> None:
    terminal = Terminal()
    call_command("idempotency_doctor", "--prove", stdout=StringIO(), stderr=terminal)
    assert terminal.getvalue().split() == [word for name in PROMISES for word in (name, "…")]
    terminal = Terminal()
    call_command("idempotency_doctor", "--prove", "--json", stdout=StringIO(), stderr=terminal)
    assert terminal.getvalue() == ""


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True
