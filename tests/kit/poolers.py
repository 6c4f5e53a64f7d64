"""A real pgbouncer in transaction mode before a PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from testproject.servers import free_port
from tests.kit.databases import another_alias
from tests.kit.threads import wait_until

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
ignore_startup_parameters = extra_float_digits,options
logfile = {folder}/pgbouncer.log
"""


@contextmanager
def pgbouncer(host: str, port: int | str, user: str) -> Iterator[int]:
    """Start one before this server, and yield the pooler's port."""
    assert PGBOUNCER
    folder, listen = Path(tempfile.mkdtemp(prefix="pgbouncer-")), free_port()
    config = folder / "pgbouncer.ini"
    config.write_text(CONFIG.format(host=host, port=port, user=user, listen=listen, folder=folder))
    command = [PGBOUNCER, str(config)]
    if os.getuid() == 0:  # it refuses to run as root
        shutil.chown(folder, "nobody")
        command += ["-u", "nobody"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: answers(listen), within=10)
        yield listen
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def pooler(vendor: str) -> Iterator[int]:
    """Before the database of this run; its port."""
    if vendor != "postgresql" or PGBOUNCER is None:
        pytest.skip("NOT TESTED: needs PostgreSQL and pgbouncer")
    own = connection.settings_dict
    with pgbouncer(own["HOST"] or "127.0.0.1", own["PORT"] or 5432, own["USER"] or "postgres") as port:
        yield port


def reached_by(port: int, **changes: Any) -> Any:
    options = {**connection.settings_dict["OPTIONS"], **changes.pop("OPTIONS", {})}
    return another_alias("pooled", HOST="127.0.0.1", PORT=str(port), OPTIONS=options, **changes)
