"""The primary dies under load and its synchronous standby takes over: what was acknowledged is there, and ran once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from django_idempotency.exceptions import IdempotencyError
from django_idempotency.once import Claim, once
from testproject.replication import NAME, PostgreSQL
from testproject.servers import ROOT
from tests.kit.databases import default_database
from tests.kit.replication import primary_and_standby
from tests.kit.threads import wait_until
from tests.nodes.claiming import SCOPE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.vendor,
    pytest.mark.soak,
]

CLIENTS = 4
KEYS = 200  # acknowledged before the primary dies, and as many after that


@contextmanager
def clients(folder: Path, *servers: PostgreSQL) -> Iterator[None]:
    """Each talks to whichever of the servers takes writes."""
    hosts, ports = ("127.0.0.1," * len(servers))[:-1], ",".join(str(server.port) for server in servers)
    way = f"host={hosts}&port={ports}&target_session_attrs=read-write&connect_timeout=2"
    environment = {
        **os.environ,
        "DATABASE_URL": f"postgresql://postgres@/{NAME}?{way}",
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
    }
    command = [sys.executable, "-m", "tests.nodes.claiming", str(folder)]
    with ExitStack() as stack:
        for number in range(CLIENTS):
            process = subprocess.Popen([*command, f"client{number}"], cwd=ROOT, env=environment)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        yield


def lines(folder: Path, what: str) -> list[str]:
    return [line for path in folder.glob(f"*.{what}") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGKILL])
def test_no_acknowledged_key_is_lost_or_runs_again(how: signal.Signals, vendor: str, tmp_path: Path) -> None:
    if vendor != "postgresql":
        pytest.skip("PostgreSQL's replication")
    with primary_and_standby() as (primary, standby):
        primary.follow_synchronously("standby")
        with clients(tmp_path, primary, standby):
            wait_until(lambda: len(lines(tmp_path, "acknowledged")) >= KEYS)
            primary.crash(how)
            before = len(lines(tmp_path, "acknowledged"))
            standby.ask("SELECT pg_promote()")
            wait_until(lambda: len(lines(tmp_path, "acknowledged")) >= before + KEYS)

        executed, acknowledged = Counter(lines(tmp_path, "executed")), lines(tmp_path, "acknowledged")
        with default_database(**standby.settings()):
            repeated = {key: repeat(key) for key in executed}
    assert set(executed.values()) == {1}
    assert {key: repeated[key] for key in acknowledged} == {key: key for key in acknowledged}


def repeat(key: str) -> str:
    """What a client gets that sends it again: the result, or that nobody knows it."""

    def run(claim: Claim) -> str:
        raise AssertionError(f"{key} runs again")

    try:
        return str(once(scope=SCOPE, key=key, run=run))
    except IdempotencyError as error:
        return error.code
