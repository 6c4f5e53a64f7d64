"""The same message twenty times at once, and again after its worker was killed: one effect."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest
from pytest_django.plugin import DjangoDbBlocker

from django_idempotency.core.calls import make_record_id
from tests.celery.served.operations import gate
from tests.celery.served.tasks import came
from tests.kit.celery_processes import Broker, CeleryProcess, worker
from tests.kit.processes import query
from tests.kit.threads import wait_until

pytestmark = pytest.mark.vendor

DELIVERIES = 20
SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.celery.served.impatient_settings"}
RECORDS = "SELECT id, status FROM idempotency_key"
RESULT = r"succeeded in \S+: '(\w+)'"


@dataclass(frozen=True)
class Message:
    """One message of one broker, which may be delivered as often as one likes."""

    broker: Broker
    database_url: str
    id: str

    def deliver(self, task: str) -> None:
        self.broker.send(task, self.id, task_id=self.id)

    def worker(self, *options: str) -> AbstractContextManager[CeleryProcess]:
        return worker(self.broker, {**SETTINGS, "DATABASE_URL": self.database_url}, *options)

    def entries(self) -> int:
        return len(query(self.database_url, "SELECT id FROM payments_ledgerentry WHERE reference = %s", self.id))

    def status(self, task: str) -> str:
        record = make_record_id(f"once:{task}", self.id)
        statuses = {UUID(str(found)): status for found, status in query(self.database_url, RECORDS)}
        return str(statuses[record])

    def came_to_the_gate(self) -> list[int]:
        """The processes that came."""
        folder = came(self.broker.folder)
        return [int(file.name) for file in folder.iterdir()] if folder.exists() else []

    def open_the_gate(self) -> None:
        gate(self.broker.folder).touch()


@pytest.fixture
def message(any_broker: Broker, quick_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Message]:
    # Redis keeps what is taken and not acknowledged for all queues together: away from other people's.
    url = any_broker.url.removesuffix("/0") + "/9" if any_broker.url.startswith("redis:") else any_broker.url
    used = replace(any_broker, url=url)
    with django_db_blocker.unblock():
        yield Message(used, quick_database, uuid4().hex)
    used.clear()


@pytest.mark.parametrize(
    "task",
    [
        "tests.late_leased",
        pytest.param("tests.book_leased", marks=pytest.mark.soak),
        pytest.param("tests.book_atomic", marks=pytest.mark.soak),
    ],
)
def test_twenty_deliveries_at_once_have_one_effect(message: Message, task: str) -> None:
    for _ in range(DELIVERIES):
        message.deliver(task)

    with message.worker("--pool", "threads", "--concurrency", str(DELIVERIES)) as consumer:
        wait_until(lambda: len(consumer.said(RESULT)) >= DELIVERIES, within=120)

    assert len(set(consumer.said(RESULT))) == 1
    assert message.entries() == 1


@pytest.fixture(params=["the whole worker", pytest.param("its process", marks=pytest.mark.soak)])
def killed(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def kill(message: Message, consumer: CeleryProcess, what: str, task: str) -> list[int]:
    """In the middle of the task."""
    came_first = wait_until(message.came_to_the_gate)
    if what == "its process":
        os.kill(came_first[0], signal.SIGKILL)
        return came_first
    consumer.kill()
    if message.broker.is_filesystem:
        message.deliver(task)  # there a message that was taken is gone
    return came_first


def test_a_leased_task_whose_worker_was_killed_does_not_run_again(message: Message, killed: str) -> None:
    task = "tests.gate_leased"
    message.deliver(task)
    with message.worker() as consumer:
        came_first = kill(message, consumer, killed, task)
        if killed == "its process":
            wait_until(lambda: consumer.said("OutcomeUnknown"))
    if killed == "the whole worker":
        with message.worker() as consumer:
            wait_until(lambda: consumer.said("OutcomeUnknown"))

    assert message.came_to_the_gate() == came_first
    assert message.entries() == 1
    assert message.status(task) == "unknown"


def test_an_atomic_task_whose_worker_was_killed_runs_afresh(message: Message, killed: str) -> None:
    task = "tests.gate_atomic"
    message.deliver(task)
    with message.worker() as consumer:
        kill(message, consumer, killed, task)
        assert message.entries() == 0
        message.open_the_gate()
        if killed == "its process":
            wait_until(lambda: consumer.said(RESULT))
    if killed == "the whole worker":
        with message.worker() as consumer:
            wait_until(lambda: consumer.said(RESULT))

    assert len(message.came_to_the_gate()) == 2
    assert message.entries() == 1
    assert message.status(task) == "completed"


@pytest.mark.soak
def test_a_message_waits_for_the_lease_of_a_killed_worker_however_long_and_then_runs(message: Message) -> None:
    task = "tests.gate_restart"
    message.deliver(task)
    with message.worker() as consumer:
        kill(message, consumer, "the whole worker", task)
    message.open_the_gate()
    with message.worker() as consumer:
        wait_until(lambda: consumer.said(RESULT) or consumer.said("raised unexpected"))

    assert consumer.said(RESULT)
    assert len(message.came_to_the_gate()) == 2
    assert message.entries() == 1
    assert message.status(task) == "completed"
