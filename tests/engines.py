"""Start an engine of which `tests.servers` is asked by name, and stop it again.

Each is started from packages, on ports of its own, in folders that are deleted with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from testproject.replication import PostgreSQL, own_postgresql, standby_of
from testproject.servers import ROOT
from tests.kit import mariadb, poolers

PARTITIONS = 4
READS_WAIT = "SET SESSION wsrep_sync_wait = 1"


class NotHere(Exception):
    """The engine cannot be started; the message says what is missing."""


@dataclass(frozen=True)
class Engine:
    """One that runs: where it is, which versions answer, and with which options pytest has to run."""

    url: str
    versions: str = ""
    options: list[str] = field(default_factory=list)


@contextmanager
def pgbouncer() -> Iterator[Engine]:
    """Transaction pooling. The test database goes with its server, because the pooler's sessions would keep it."""
    if poolers.PGBOUNCER is None:
        raise NotHere("no pgbouncer")
    version = subprocess.run([poolers.PGBOUNCER, "--version"], capture_output=True, text=True, check=True)
    with own_postgresql() as server, poolers.pgbouncer("127.0.0.1", server.port, "postgres") as port:
        url = f"postgresql://postgres@127.0.0.1:{port}/records?pooler=transaction"
        versions = f"{version.stdout.splitlines()[0]}, {version_of(server)}"
        yield Engine(url, versions, ["--reuse-db", "-m", "not direct"])


@contextmanager
def partitions() -> Iterator[Engine]:
    """Every database of this server begins with the partitioned table, as its template has it."""
    with own_postgresql() as server:
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        subprocess.run(migrate, cwd=ROOT, env={**os.environ, "DATABASE_URL": url_of(server, "template1")}, check=True)
        with server.connect("template1") as template:
            partition_by_scope(template)
        yield Engine(url_of(server), version_of(server), ["-m", "not unique_id"])


def partition_by_scope(server: psycopg.Connection[Any]) -> None:
    """Lay the empty table out as HASH (scope). A foreign key to it can no longer be the database's."""
    name = "idempotency_key"
    query = "SELECT indexdef FROM pg_indexes WHERE tablename = %s AND indexdef NOT LIKE 'CREATE UNIQUE %%'"
    indexes = [definition for (definition,) in server.execute(query, [name])]
    server.execute(f"ALTER TABLE {name} RENAME TO plain")
    kept = "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMPRESSION"
    server.execute(f"CREATE TABLE {name} (LIKE plain {kept}) PARTITION BY HASH (scope)")
    server.execute("DROP TABLE plain CASCADE")
    for number in range(PARTITIONS):
        values = f"WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
        server.execute(f"CREATE TABLE {name}_{number} PARTITION OF {name} FOR VALUES {values}")
    unique = f"ADD PRIMARY KEY (id, scope), ADD CONSTRAINT {name}_scope_key UNIQUE (key, scope)"
    server.execute(f"ALTER TABLE {name} {unique}")
    for definition in indexes:
        server.execute(definition)


@contextmanager
def replication() -> Iterator[Engine]:
    """Every COMMIT waits for the standby."""
    with own_postgresql() as primary, standby_of(primary):
        primary.follow_synchronously("standby")
        yield Engine(url_of(primary), version_of(primary))


@contextmanager
def galera() -> Iterator[Engine]:
    """Three nodes. The suite writes to the first; `tests/nodes` finds the others in the status of the first."""
    programs = {
        "mariadbd": mariadb.SERVER,
        "mariadb-install-db": mariadb.INSTALL,
        "libgalera_smm.so": mariadb.GALERA,
        "rsync": shutil.which("rsync"),
    }
    if missing := [f"no {name}" for name, found in programs.items() if not found]:
        raise NotHere(", ".join(missing))
    with tempfile.TemporaryDirectory(prefix="galera-") as folder, mariadb.galera(Path(folder)) as ports:
        with pymysql.connect(host="127.0.0.1", port=ports[0], user="root") as server, server.cursor() as cursor:
            cursor.execute(
                "SELECT VERSION(), variable_value FROM information_schema.global_status"
                " WHERE variable_name = 'wsrep_provider_version'"
            )
            ((version, library),) = cursor.fetchall()
        url = f"mysql://root@127.0.0.1:{ports[0]}/records?init_command={READS_WAIT.replace(' ', '+')}"
        yield Engine(url, f"MariaDB {version}, Galera {library}")


@contextmanager
def citus() -> Iterator[Engine]:
    """A cluster that is there already: its coordinator, with the database `test_…` of the URL's name distributed."""
    if not (url := os.environ.get("CITUS_URL")):
        raise NotHere("CITUS_URL is not set")
    with psycopg.connect(url) as server:
        ((version,),) = server.execute("SELECT citus_version()")
    yield Engine(url, version, ["--reuse-db"])


def url_of(server: PostgreSQL, database: str = "records") -> str:
    return f"postgresql://postgres@127.0.0.1:{server.port}/{database}"


def version_of(server: PostgreSQL) -> str:
    with server.connect("postgres") as connection:
        return f"PostgreSQL {connection.info.parameter_status('server_version')}"


ENGINES: dict[str, Callable[[], AbstractContextManager[Engine]]] = {
    "pgbouncer": pgbouncer,
    "hash": partitions,
    "replication": replication,
    "galera": galera,
    "citus": citus,
}
