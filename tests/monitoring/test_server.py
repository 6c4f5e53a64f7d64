"""What the doctor says of the server itself, asked of real ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from django_idempotency.monitoring.findings import Code
from django_idempotency.monitoring.health import examine
from tests.kit.databases import another_alias
from tests.kit.mariadb import GALERA, INSTALL, SERVER, mariadb
from tests.kit.replication import PostgreSQL
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ABOUT_SERVERS = {
    Code.READ_ONLY,
    Code.UNIQUE_MISSING,
    Code.COMMITS_LOST,
    Code.STANDBYS_LATE,
    Code.READS_STALE,
    Code.NODE_NOT_SYNCED,
    Code.CLIENTS_UNNOTICED,
    Code.LOOK_ALIKE,
}


def found(using: str = "default") -> dict[Code, Any]:
    return {each.code: dict(each.values) for each in examine(using) if each.code in ABOUT_SERVERS}


@pytest.fixture
def with_options(vendor: str) -> Callable[..., Any]:
    """The same database with settings for the session."""
    if vendor != "postgresql":
        pytest.skip("PostgreSQL's settings")

    def made(**settings: str) -> Any:
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        return another_alias("session", OPTIONS={**connection.settings_dict["OPTIONS"], "options": options})

    return made


def test_a_server_as_it_is_installed(vendor: str) -> None:
    assert found() == ({Code.CLIENTS_UNNOTICED: {}} if vendor == "postgresql" else {})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"synchronous_commit": "off"}, {Code.COMMITS_LOST: {"setting": "synchronous_commit", "value": "off"}}),
        ({"synchronous_commit": "local"}, {}),
        ({"default_transaction_read_only": "on"}, {Code.READ_ONLY: {"setting": "transaction_read_only"}}),
    ],
)
def test_a_setting(with_options: Callable[..., Any], settings: dict[str, str], expected: dict[Code, Any]) -> None:
    with with_options(client_connection_check_interval="5s", **settings) as using:
        assert found(using) == expected


@contextmanager
def hidden_by(*statements: str) -> Iterator[None]:
    """Names in a schema of the test's own come before those that are there."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA hiding")
        try:
            for statement in statements:
                cursor.execute(statement)
            yield
        finally:
            cursor.execute("SET client_min_messages = error")
            cursor.execute("DROP SCHEMA hiding CASCADE")
            cursor.execute("RESET client_min_messages")


@pytest.mark.parametrize(
    ("statement", "engine"),
    [
        (
            "FUNCTION hiding.version() RETURNS text RETURN 'CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)'",
            "CockroachDB",
        ),
        ("FUNCTION hiding.version() RETURNS text RETURN 'PostgreSQL 11.2-YB-2.20.1.3-b0'", "YugabyteDB"),
        ("VIEW hiding.pg_extension AS SELECT 'citus' AS extname", "Citus"),
    ],
)
def test_a_look_alike(with_options: Callable[..., Any], statement: str, engine: str) -> None:
    path = {"search_path": "hiding,public,pg_catalog", "client_connection_check_interval": "5s"}
    with hidden_by(f"CREATE {statement}"), with_options(**path) as using:
        assert found(using) == {Code.LOOK_ALIKE: {"engine": engine}}


COLUMNS = "hiding.idempotency_key (LIKE public.idempotency_key)"


@pytest.mark.parametrize(
    ("layout", "unique", "expected"),
    [
        ("", "ALTER created_at DROP NOT NULL", {Code.UNIQUE_MISSING: {}}),
        ("", "ADD PRIMARY KEY (id)", {}),
        ("", "ADD UNIQUE (key, scope)", {}),
        ("PARTITION BY HASH (scope)", "ADD PRIMARY KEY (scope, id)", {}),
        ("PARTITION BY RANGE (created_at)", "ADD PRIMARY KEY (id, created_at)", {Code.UNIQUE_MISSING: {}}),
    ],
)
def test_a_layout(with_options: Callable[..., Any], layout: str, unique: str, expected: dict[Code, Any]) -> None:
    statements = [
        f"CREATE TABLE {COLUMNS} {layout}",
        *([f"ALTER TABLE hiding.idempotency_key {unique}"] if unique else []),
    ]
    path = {"search_path": "hiding,public", "client_connection_check_interval": "5s"}
    with hidden_by(*statements), with_options(**path) as using:
        assert found(using) == expected


@pytest.mark.slow
@pytest.mark.processes
def test_standbys_that_no_commit_waits_for(primary: PostgreSQL) -> None:
    with primary.configured(client_connection_check_interval="'5s'"):
        wait_until(lambda: found() == {Code.STANDBYS_LATE: {"count": 1}}, within=10)
        with primary.configured(synchronous_standby_names="standby"):
            wait_until(lambda: found() == {}, within=10)
            with primary.configured(synchronous_commit="local"):
                wait_until(lambda: found() == {Code.STANDBYS_LATE: {"count": 1}}, within=10)


@pytest.mark.slow
@pytest.mark.processes
def test_a_standby_takes_no_writes(standby: PostgreSQL) -> None:
    with another_alias("standby", **standby.settings(options="-c client_connection_check_interval=5s")) as using:
        assert found(using) == {Code.READ_ONLY: {"setting": "in_hot_standby"}}


@pytest.mark.slow
@pytest.mark.processes
def test_a_subscriber_is_no_standby(primary: PostgreSQL) -> None:
    where = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres", "-d", "records", "--slot=subscriber"]
    command = [str(primary.programs / "pg_recvlogical"), *where]
    with primary.connect() as server:
        server.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    subprocess.run([*command, "--create-slot", "-P", "pgoutput"], check=True)
    options = ["-o", "proto_version=1", "-o", "publication_names=everything", "-f", "/dev/null"]
    process = subprocess.Popen([*command, "--start", *options], stderr=subprocess.DEVNULL)
    try:
        with primary.connect() as server:
            count = "SELECT COUNT(*) FROM pg_stat_replication"
            wait_until(lambda: server.execute(count).fetchone() == (2,), within=10)
        assert found()[Code.STANDBYS_LATE] == {"count": 1}
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def own_mariadb(tmp_path: Path, vendor: str) -> Callable[..., Any]:
    if vendor != "mysql" or not SERVER or not INSTALL:
        pytest.skip("NOT TESTED: needs MariaDB and its server")
    return lambda *options: mariadb(tmp_path, *options)


@pytest.mark.slow
@pytest.mark.processes
def test_a_mariadb_that_loses_commits(own_mariadb: Callable[..., Any]) -> None:
    expected = {Code.COMMITS_LOST: {"setting": "innodb_flush_log_at_trx_commit", "value": "2"}}
    with own_mariadb("--innodb-flush-log-at-trx-commit=2") as using:
        assert found(using) == expected
        with connections[using].cursor() as cursor:
            cursor.execute("SET GLOBAL read_only = ON")
        assert found(using) == {Code.READ_ONLY: {"setting": "read_only"}, **expected}


@pytest.mark.slow
@pytest.mark.processes
def test_a_node_of_galera(own_mariadb: Callable[..., Any]) -> None:
    if GALERA is None:
        pytest.skip("NOT TESTED: needs Galera's library")
    cluster = ["--wsrep-on=ON", f"--wsrep-provider={GALERA}", "--wsrep-cluster-address=gcomm://", "--binlog-format=ROW"]
    with own_mariadb(*cluster, "--innodb-autoinc-lock-mode=2") as using:
        assert found(using) == {Code.READS_STALE: {"value": "0"}}
        with connections[using].cursor() as cursor:
            cursor.execute("SET SESSION wsrep_sync_wait = 1")
            assert found(using) == {}
            cursor.execute("SET GLOBAL wsrep_desync = ON")
        assert found(using) == {Code.NODE_NOT_SYNCED: {"state": "donor/desynced"}}
