"""MariaDB servers of the test's own: one with the tables of this run's database, or a cluster without any."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pymysql
from django.db import connection, connections

from testproject.servers import free_port
from tests.kit.databases import another_alias
from tests.kit.replication import user
from tests.kit.threads import wait_until

NAME = "records"
SERVER, INSTALL = shutil.which("mariadbd", path="/usr/sbin:/usr/bin"), shutil.which("mariadb-install-db")
GALERA = next(map(str, Path("/usr/lib").glob("galera*/libgalera_smm.so")), None)


@contextmanager
def mariadb(folder: Path, *options: str) -> Iterator[str]:
    """Start a server with these options, and yield an alias that leads to it."""
    with own_mariadb(folder, *options) as port:
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


@contextmanager
def own_mariadb(folder: Path, *options: str) -> Iterator[int]:
    """Start an empty server with these options, and yield its port."""
    assert SERVER
    assert INSTALL
    port, data = free_port(), folder / "data"
    base = ["--no-defaults", f"--datadir={data}", f"--user={folder.owner()}"]
    install = [INSTALL, *base, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    where = [
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
        f"--log-error={folder / 'log'}",
        f"--wsrep-node-incoming-address=127.0.0.1:{port}",
    ]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([SERVER, *base, *where, *options], **quiet, start_new_session=True)
    try:
        wait_until(lambda: _is_up(port), within=60)
        yield port
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def galera(folder: Path, nodes: int = 3) -> Iterator[list[int]]:
    """Start a cluster of empty nodes, and yield their ports. A node does not take the state of another one as root."""
    shutil.chown(folder, user() or os.getuid())
    with ExitStack() as stack:
        members: list[str] = []
        ports: list[int] = []
        for number in range(nodes):
            group, state, whole = (f"127.0.0.1:{free_port()}" for _ in range(3))
            own = folder / f"node{number}"
            own.mkdir()
            shutil.chown(own, user() or os.getuid())
            options = [
                "--wsrep-on=ON",
                f"--wsrep-provider={GALERA}",
                f"--wsrep-cluster-address=gcomm://{','.join(members)}",
                f"--wsrep-provider-options=gmcast.listen_addr=tcp://{group};ist.recv_addr={state}",
                f"--wsrep-node-address={group}",
                f"--wsrep-sst-receive-address={whole}",
                "--wsrep-sst-method=rsync",
                "--binlog-format=ROW",
                "--innodb-autoinc-lock-mode=2",
            ]
            ports.append(stack.enter_context(own_mariadb(own, *options)))
            members.append(group)
            wait_until(lambda: all(_sees(port, len(ports)) for port in ports), within=120)
        yield ports


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


def _sees(port: int, nodes: int) -> bool:
    """Whether this node is synced with all of so many."""
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as server, server.cursor() as cursor:
        cursor.execute("SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_local_state_comment')")
        return dict(cursor.fetchall()) == {"wsrep_cluster_size": str(nodes), "wsrep_local_state_comment": "Synced"}
