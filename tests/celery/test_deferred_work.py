"""Workers that are killed, brokers that forget, messages that come twice or too early: the job ends once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from pytest_django.plugin import DjangoDbBlocker

from testproject.http import Answer, stored_in
from testproject.servers import ROOT
from tests.celery.conftest import QUICK
from tests.celery.served.operations import gate
from tests.celery.test_end_to_end import manage
from tests.kit.celery_processes import Broker, beat, worker
from tests.kit.processes import Client, Site, running_site
from tests.kit.threads import wait_until

pytestmark = pytest.mark.vendor

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.celery.served.settings"}
PERFORMED = r"run_operation\[\S+\] succeeded"


@dataclass(frozen=True)
class Reports:
    """The service, sending to one broker, and what its only client knows."""

    site: Site
    broker: Broker
    title: str
    environment: dict[str, str]

    @property
    def client(self) -> Client:
        return self.site.alice

    def ask(self) -> Answer:
        return self.client.post("/reports/", {"title": self.title}, key=f'"{self.title}"')

    def poll(self, address: str) -> Answer:
        return self.client.get(address)

    def status(self, address: str) -> Any:
        return self.poll(address).json().get("status")

    def done(self, address: str) -> Answer | None:
        answer = self.poll(address)
        assert answer.status in (200, 202), answer.body
        return stored_in(answer) if answer.status == 200 else None

    def at_the_gate(self) -> list[int]:
        """The processes that came to the gate."""
        came = "SELECT account FROM payments_ledgerentry WHERE reference LIKE %s ORDER BY id"
        return [int(account) for (account,) in self.site.rows(came, "at the gate%")]

    def written(self) -> list[str]:
        noted = "SELECT reference FROM payments_ledgerentry WHERE account = %s ORDER BY id"
        return [reference for (reference,) in self.site.rows(noted, "report")]

    def lease(self) -> Any:
        ((until,),) = self.site.rows("SELECT locked_until FROM idempotency_key WHERE status = 'in_progress'")
        return until

    def open_the_gate(self) -> None:
        gate(self.broker.folder).touch()

    def tell_a_worker(self, record: str) -> None:
        """A message past the service."""
        self.broker.send("django_idempotency.run_operation", record)


@pytest.fixture
def reports(any_broker: Broker, quick_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Reports]:
    environment = {**QUICK, **SETTINGS, **any_broker.environment()}
    with (
        django_db_blocker.unblock(),
        running_site(any_broker.folder, quick_database, workers=1, threads=4, environment=environment) as site,
    ):
        site.reset()
        for table in ("payments_ledgerentry", "idempotency_key"):
            site.rows(f"DELETE FROM {table}")
        yield Reports(site, any_broker, str(uuid4()), {**environment, "DATABASE_URL": quick_database})


def reference(accepted: Answer) -> str:
    return str(accepted.json()["operation_ref"])


def test_a_killed_worker_is_replaced_and_pollers_see_it_all(reports: Reports) -> None:
    accepted = reports.ask()
    address = accepted.headers["Location"]
    assert (accepted.status, reports.ask().body) == (202, accepted.body)
    assert reports.status(address) == "pending"
    assert reports.broker.waiting() == 1

    with worker(reports.broker, reports.environment) as consumer, beat(reports.broker, reports.environment):
        (first,) = wait_until(reports.at_the_gate)
        running = reports.poll(address).json()
        assert (running["status"], running["steps"]) == ("in_progress", ["begun"])
        assert running["progress"] == {"done": 1, "total": 2}
        os.kill(first, signal.SIGKILL)

        second = wait_until(lambda: reports.at_the_gate()[1:])
        assert first not in second
        reports.open_the_gate()
        done = wait_until(lambda: reports.done(address))
        assert done

        performed = len(consumer.said(PERFORMED))
        for _ in range(3):
            reports.tell_a_worker(reference(accepted))
        wait_until(lambda: len(consumer.said(PERFORMED)) >= performed + 3)

    assert reports.written() == [f"{reports.title} begun", f"{reports.title} ended"]
    assert done.json()["title"] == reports.title
    assert len(done.json()["processes"]) == 2
    assert reports.ask().body == done.body


@pytest.mark.soak
def test_a_broker_that_forgot_everything_is_told_again(reports: Reports) -> None:
    reports.open_the_gate()
    accepted = reports.ask()
    assert reports.broker.waiting() == 1
    reports.broker.empty()
    assert reports.broker.waiting() == 0

    with worker(reports.broker, reports.environment) as consumer:
        for record in (str(uuid4()), "no id at all", ""):
            reports.tell_a_worker(record)
        wait_until(lambda: len(consumer.said(PERFORMED)) == 3)
        assert reports.status(accepted.headers["Location"]) == "pending"

        def swept() -> bool:
            return "enqueued" in manage(reports.environment, "idempotency_sweep", "--json")

        wait_until(swept)
        assert wait_until(lambda: reports.done(accepted.headers["Location"]))
    assert reports.written() == [f"{reports.title} begun", f"{reports.title} ended"]


@pytest.mark.parametrize("any_broker", ["filesystem"], indirect=True)
def test_a_command_is_a_worker_too_and_ends_when_told_to(reports: Reports) -> None:
    accepted = reports.ask()
    reports.broker.empty()
    command = [sys.executable, "manage.py", "idempotency_work", "--forever", "--every=0.05"]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **reports.environment}) as working:
        (there,) = wait_until(reports.at_the_gate)
        assert there == working.pid
        began = reports.lease()
        wait_until(lambda: reports.lease() > began)  # it lasts while the process lives
        working.terminate()
        reports.open_the_gate()
        assert working.wait(60) == 0, "what it had begun is finished, and nothing else is begun"
    assert reports.done(accepted.headers["Location"])
    assert reports.written() == [f"{reports.title} begun", f"{reports.title} ended"]
