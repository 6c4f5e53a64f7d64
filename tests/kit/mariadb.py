"""A MariaDB server of the test's own, with the tables of this run's database."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
from django.db import connection, connections

from testproject.servers import free_port
from tests.kit.databases import another_alias
from tests.kit.threads import wait_until

NAME = "records"
SERVER, INSTALL = shutil.which("mariadbd", path="/usr/sbin:/usr/bin"), shutil.which("mariadb-install-db")
GALERA = next(map(str, Path("/usr/lib").glob("galera*/libgalera_smm.so")), None)


@contextmanager
def mariadb(folder: Path, *options: str) -> Iterator[str]:
    """Start a server with these options, and yield an alias that leads to it."""
    assert SERVER
    assert INSTALL
    port, data = free_port(), folder / "data"
    base = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}"]
    install = [INSTALL, *base, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    where = [
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
    ]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([SERVER, *base, *where, *options], **quiet)
    try:
        wait_until(lambda: _is_up(port), within=30)
        copies = _read_tables()
        with another_alias("own", HOST="127.0.0.1", PORT=str(port), USER="root", PASSWORD="", NAME="") as using:
            with connections[using].cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {NAME} CHARACTER SET utf8mb4")
                cursor.execute(f"USE {NAME}")
                cursor.execute("SET foreign_key_checks = 0")
                for statement in copies:
                    cursor.execute(statement)
            connections[using].close()
            connections[using].settings_dict["NAME"] = NAME
            yield using
    finally:
        process.terminate()
        process.wait(30)


def _read_tables() -> list[str]:
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f"SHOW CREATE TABLE {table}")
            found.append(cursor.fetchone()[1])
    return found


def _is_up(port: int) -> bool:
    try:
        pymysql.connect(host="127.0.0.1", port=port, user="root").close()
    except pymysql.Error:
        return False
    return True
