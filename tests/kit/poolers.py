"""A real pgbouncer in transaction mode before the database of this run."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from testproject.servers import free_port
from tests.kit.databases import another_alias
from tests.kit.threads import wait_until

CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = extra_float_digits,options
logfile = {folder}/pgbouncer.log
"""


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def pooler(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[int]:
    """Start it, and return its port."""
    program = shutil.which("pgbouncer")
    if vendor != "postgresql" or program is None:
        pytest.skip("NOT TESTED: needs PostgreSQL and pgbouncer")
    folder, listen, own = tmp_path_factory.mktemp("pgbouncer"), free_port(), connection.settings_dict
    values = {"host": own["HOST"] or "127.0.0.1", "port": own["PORT"] or 5432, "user": own["USER"] or "postgres"}
    config = Path(folder, "pgbouncer.ini")
    config.write_text(CONFIG.format(**values, listen=listen, folder=folder))
    command = [program, str(config)]
    if os.getuid() == 0:  # it refuses to run as root
        nobody = pwd.getpwnam("nobody")
        for each in (folder, config):
            os.chown(each, nobody.pw_uid, nobody.pw_gid)
        for parent in folder.parents:
            if parent.stat().st_uid == 0 and parent != Path("/") and "pytest" in parent.name:
                parent.chmod(0o755)
        command += ["-u", "nobody"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(listen), within=10)
        yield listen
    finally:
        process.terminate()
        process.wait(10)


def reached_by(port: int, **changes: Any) -> Any:
    options = {**connection.settings_dict["OPTIONS"], **changes.pop("OPTIONS", {})}
    return another_alias("pooled", HOST="127.0.0.1", PORT=str(port), OPTIONS=options, **changes)
