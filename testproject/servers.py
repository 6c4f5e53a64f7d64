"""Start and stop the gateway and the service as real processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
STARTS_WITHIN_SECONDS = 60
Kind = Literal["gunicorn", "uvicorn", "hypercorn", "daphne"]


@dataclass(frozen=True)
class Program:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self, *, within: float = 10) -> None:
        self.process.terminate()
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Server(Program):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port(preferred: int = 0) -> int:
    """The preferred port where it is free, else any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return free_port()
        return int(probe.getsockname()[1])


def start_gateway(folder: Path, *, host: str = "127.0.0.1", port: int | None = None) -> Server:
    port = port or free_port()
    options = ("--host", host, "--port", str(port), "--ledger", str(folder / "gateway.jsonl"))
    return start("gateway", port, "testproject.gateway", *options, folder=folder)


def start_service(
    folder: Path,
    *,
    database_url: str,
    gateway_url: str,
    kind: Kind = "gunicorn",
    host: str = "127.0.0.1",
    port: int | None = None,
    workers: int = 4,
    threads: int = 16,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Server:
    port = port or free_port()
    commands = {
        "gunicorn": (
            *("gunicorn", "testproject.wsgi", "--bind", f"{host}:{port}", "--no-control-socket"),
            *("--worker-class", "gthread", "--workers", str(workers), "--threads", str(threads)),
        ),
        "uvicorn": (
            "uvicorn",
            "testproject.asgi:application",
            "--host",
            host,
            "--port",
            str(port),
            "--lifespan",
            "off",
        ),
        "hypercorn": ("hypercorn", "testproject.asgi:application", "--bind", f"{host}:{port}"),
        "daphne": ("daphne", "testproject.asgi:application", "--bind", host, "--port", str(port)),
    }
    variables = {"DATABASE_URL": database_url, "GATEWAY_URL": gateway_url, "TESTPROJECT_VAR": str(folder)}
    return start(kind, port, *commands[kind], *options, folder=folder, environment={**variables, **(environment or {})})


def start(
    name: str,
    port: int,
    module: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Server:
    """Run a module and wait until its port answers."""
    log = folder / f"{name}-{port}.log"
    server = Server(name, run(log, module, *arguments, environment=environment, python=python), log, port)
    wait_until_it_listens(server)
    return server


def run(
    log: Path, *command: str, environment: Mapping[str, str] | None = None, python: str = sys.executable
) -> subprocess.Popen[bytes]:
    """A module as a process of its own, with its output in a file."""
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - every command stands in this file
            [python, "-m", *command],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def start_worker(folder: Path, environment: Mapping[str, str]) -> Program:
    """A Celery worker with beat in it, so that the jobs run as often as the environment says."""
    log = folder / "worker.log"
    beat = ("--beat", "--schedule", str(folder / "beat-schedule"))
    command = ("celery", "-A", "testproject", "worker", "--concurrency", "1", "--loglevel", "INFO", *beat)
    return Program("worker", run(log, *command, environment=environment), log)


def wait_until_it_listens(server: Server) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    server.stop()
    raise RuntimeError(f"{server.name} did not start; it said:\n{server.log.read_text()[-4000:]}")


def workers(server: Server) -> list[int]:
    """The process ids of gunicorn's workers that are alive, as it wrote them into its log."""
    booted = re.findall(r"Booting worker with pid: (\d+)", server.log.read_text())
    return [pid for pid in map(int, booted) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill_workers(server: Server) -> list[int]:
    """kill -9 all of them at once; gunicorn's arbiter starts others."""
    killed = workers(server)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    return killed


def prepare_database(database_url: str, *extent: str) -> None:
    """Create the tables and the people of the demonstration; `extent` is an option of `seed`."""
    for command in (["migrate", "--verbosity", "0"], ["seed", *extent]):
        subprocess.run(  # noqa: S603 - every command stands in this file
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database_url},
            check=True,
            stdout=subprocess.DEVNULL,
        )
