"""A real Celery worker and a real beat on any of three brokers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from kombu import Connection

from testproject.servers import ROOT
from tests.kit.threads import wait_until

STARTS_WITHIN_SECONDS = 60
SERVERS = {"redis": "REDIS_URL", "rabbitmq": "AMQP_URL"}
WORKER = ("worker", "--loglevel", "INFO", "--concurrency", "2", "--without-gossip", "--without-mingle")


@dataclass(frozen=True)
class Broker:
    """The queues of one test on one broker: its own, and that of the maintenance jobs."""

    url: str
    queue: str
    folder: Path

    @property
    def queues(self) -> tuple[str, str]:
        return self.queue, f"{self.queue}.maintenance"

    def send(self, task: str, *arguments: Any, task_id: str | None = None) -> None:
        """A message past the service."""
        app = Celery(broker=self.url, set_as_current=False)
        app.conf.update(broker_transport_options=self.transport_options(), task_default_queue=self.queue)
        app.send_task(task, arguments, task_id=task_id, ignore_result=True)
        app.close()

    def environment(self) -> dict[str, str]:
        return {
            "CELERY_BROKER_URL": self.url,
            "CELERY_TASK_DEFAULT_QUEUE": self.queue,
            "TESTPROJECT_VAR": str(self.folder),
        }

    def waiting(self) -> int:
        """How many messages lie in the queues."""
        with self._connection() as connection:
            return sum(self._waiting_in(queue, connection) for queue in self.queues)

    def _waiting_in(self, queue: str, connection: Connection) -> int:
        channel: Any = connection.channel()  # one of its own: a queue that is not there closes it
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except connection.channel_errors:
            return 0

    def empty(self) -> None:
        """Forget every message."""
        with self._connection() as connection:
            for queue in self.queues:
                channel: Any = connection.channel()  # one of its own: a queue that is not there closes it
                with suppress(*connection.channel_errors):
                    channel.queue_purge(queue)

    def clear(self) -> None:
        with self._connection() as connection:
            channel: Any = connection.default_channel
            for queue in self.queues:
                channel.queue_delete(queue)
                channel.exchange_delete(queue)

    def _connection(self) -> Connection:
        return Connection(self.url, transport_options=self.transport_options())

    def transport_options(self) -> dict[str, str]:
        folders = {f"data_folder_{way}": str(self.folder / "celery" / "messages") for way in ("in", "out")}
        control = {"control_folder": str(self.folder / "celery" / "control")}
        return {**folders, **control} if self.is_filesystem else {}

    @property
    def expires_by_itself(self) -> bool:
        """RabbitMQ drops what has expired before a worker can count it."""
        return self.url.startswith("amqp:")

    @property
    def is_filesystem(self) -> bool:
        return self.url.startswith("filesystem:")


@contextmanager
def broker(kind: str, folder: Path) -> Iterator[Broker]:
    """Skips, loudly, where nobody says at which address that server answers."""
    if kind in SERVERS and SERVERS[kind] not in os.environ:
        pytest.skip(f"{SERVERS[kind]} is not set: worker and beat were NOT tried on {kind}")
    url = os.environ[SERVERS[kind]] if kind in SERVERS else "filesystem://"
    used = Broker(url, f"idempotency-{uuid4()}", folder)
    for each in set(used.transport_options().values()):
        Path(each).mkdir(parents=True, exist_ok=True)
    yield used
    used.clear()


@dataclass(frozen=True)
class CeleryProcess:
    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.log.read_text())

    def kill(self) -> None:
        """kill -9, with all its children."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, *, within: float) -> None:
        self.process.terminate()
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def worker(used: Broker, environment: Mapping[str, str], *options: str) -> Iterator[CeleryProcess]:
    named = ("--hostname", f"{uuid4()}@%h")  # RabbitMQ admits one worker of a name, and a killed one for a while
    patience = 0 if used.is_filesystem else 20  # there it would look for messages for seven seconds more
    arguments = (*WORKER, *named, *options)
    with _celery("worker", arguments, r"\S+@\S+ ready\.", used, environment, patience=patience) as process:
        yield process


@contextmanager
def beat(used: Broker, environment: Mapping[str, str]) -> Iterator[CeleryProcess]:
    arguments = ("beat", "--loglevel", "INFO", "--schedule", str(used.folder / "beat-schedule"), "--pidfile=")
    with _celery("beat", arguments, r"beat: Starting", used, environment, patience=1) as process:
        yield process


@contextmanager
def _celery(
    name: str,
    arguments: tuple[str, ...],
    ready: str,
    used: Broker,
    environment: Mapping[str, str],
    *,
    patience: float,
) -> Iterator[CeleryProcess]:
    log = used.folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "testproject", *arguments],
            cwd=ROOT,
            env={**os.environ, **used.environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = CeleryProcess(process, log)
    try:
        wait_until(lambda: started.said(ready) or process.poll() is not None, within=STARTS_WITHIN_SECONDS)
        assert process.poll() is None, f"{name} did not start; it said:\n{log.read_text()[-4000:]}"
        yield started
    finally:
        started.stop(within=patience)
