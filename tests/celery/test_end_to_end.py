"""A worker process dies after the charge: the key becomes unknown and is settled, with one charge and one answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from django_idempotency.monitoring.jobs import SCHEDULED
from testproject.http import Answer, NoAnswer
from testproject.servers import ROOT, kill_workers, workers
from tests.kit.celery_processes import Broker, beat, worker
from tests.kit.processes import Site
from tests.kit.threads import wait_until

pytestmark = pytest.mark.vendor

ORDER = {"amount": 1200, "currency": "EUR", "customer": "ada", "simulate": {"sleep": 20}}
TASKS = {job.task for job in SCHEDULED}


@dataclass(frozen=True)
class LostPayment:
    """The card was charged, and whoever charged it is dead."""

    site: Site
    key: str
    charge: dict[str, Any]

    @property
    def record(self) -> UUID:
        return UUID(self.charge["key"][:36])

    def retry(self) -> Answer:
        return self.site.alice.post("/payments/", ORDER, key=self.key)

    def settled(self) -> Answer | None:
        answer = self.retry()
        assert answer.status in (201, 409), answer.body
        return answer if answer.status == 201 else None

    def trail(self) -> list[tuple[str, str]]:
        """Which rows of the table were taken for this record, and by whom."""
        events = self.site.rows("SELECT record_id, transition, actor FROM idempotency_event ORDER BY id")
        return [(transition, actor) for record, transition, actor in events if UUID(str(record)) == self.record]

    def payments(self) -> list[int]:
        found = self.site.rows("SELECT id FROM payments_payment WHERE charge = %s", self.charge["id"])
        return [number for (number,) in found]


def lose_a_payment(site: Site) -> LostPayment:
    key = f'"{uuid4()}"'
    with ThreadPoolExecutor(1) as pool:
        paying = pool.submit(site.alice.post, "/payments/", ORDER, key=key)
        (charge,) = wait_until(site.charges)
        assert kill_workers(site.service)
        with pytest.raises(NoAnswer):
            paying.result()
    wait_until(lambda: workers(site.service))
    return LostPayment(site, key, charge)


def one_charge_one_payment_one_answer(lost: LostPayment) -> None:
    first = wait_until(lost.settled)
    assert first
    again = lost.retry()

    assert (again.status, again.body, again.headers["Idempotency-Replayed"]) == (201, first.body, "true")
    assert [charge["key"] for charge in lost.site.charges()] == [lost.charge["key"]]
    assert lost.payments() == [first.json()["id"]]
    assert lost.site.record_of_payment(lost.charge["id"]) == lost.record
    assert (first.json()["charge"], first.json()["amount"]) == (lost.charge["id"], ORDER["amount"])


def test_the_reconciler_settles_it_when_beat_says_so(site: Site, any_broker: Broker, quick: dict[str, str]) -> None:
    with worker(any_broker, quick) as consumer, beat(any_broker, quick):
        lost = lose_a_payment(site)
        wait_until(lambda: lost.trail() == [("T6", ""), ("T9", "reconciler")])
        one_charge_one_payment_one_answer(lost)
        wait_until(lambda: set(consumer.said(r"Task django_idempotency\.(\w+)\[\S+\] succeeded")) == TASKS)
    assert jobs_that_ran(site) >= {"sweep", "reconcile", "resume", "reap"}


def jobs_that_ran(site: Site) -> set[str]:
    runs = site.rows("SELECT job FROM idempotency_maintenance_run WHERE finished_at IS NOT NULL AND error = ''")
    return {job for (job,) in runs}


def test_a_webhook_settles_it(site: Site) -> None:
    site.switch(webhooks=2, webhook_url=f"{site.service.url}/webhooks/gateway/")
    lost = lose_a_payment(site)

    one_charge_one_payment_one_answer(lost)

    assert lost.trail() == [("T6", ""), ("T13", "gateway")]
    reference = f"evt_{lost.charge['id']}"
    booked = "SELECT id FROM payments_ledgerentry WHERE reference = %s"
    assert len(wait_until(lambda: site.rows(booked, reference))) == 1
    assert site.rows("SELECT settled_at FROM payments_payment WHERE charge = %s", lost.charge["id"]) != [(None,)]


def test_an_operator_settles_it(site: Site, quick: dict[str, str]) -> None:
    lost = lose_a_payment(site)
    wait_until(lambda: lost.retry().json()["code"] == "idempotency_outcome_unknown")

    body = manage(quick, "shell", "--no-imports", "-c", BOOK_BY_HAND.format(charge=lost.charge))
    said = manage(
        quick,
        *("idempotency_resolve", lost.charge["key"], "--landed=201", f"--body={body}", "--json"),
        *("--by=ops@example.com", "--reason=the provider's console shows the charge"),
    )

    assert json.loads(said).items() >= {"outcome": "landed", "status": "completed"}.items()
    one_charge_one_payment_one_answer(lost)
    assert lost.trail() == [("T6", ""), ("T13", "ops@example.com")]


BOOK_BY_HAND = """
from django.contrib.auth.models import User
from testproject.payments.models import Payment
from testproject.payments.reconcilers import as_payment
charge = {charge!r}
taken = {{name: charge[name] for name in ("amount", "currency", "customer")}}
record = charge["key"][:36]
alice = User.objects.get(username="alice")
payment = Payment.objects.create(owner=alice, charge=charge["id"], idempotency_key_id=record, **taken)
print(as_payment(payment).body.decode())
"""


def manage(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    finished = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()
