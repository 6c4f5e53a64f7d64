"""A report that a worker makes; killed in the middle, it is made once."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from testproject.http import Answer, stored_in
from tests.kit.celery_processes import Broker, beat, worker
from tests.kit.processes import Site
from tests.kit.threads import wait_until


@pytest.fixture
def messages(site: Site) -> Broker:
    """The broker that the service sends to."""
    return Broker("filesystem://", "celery", site.service.log.parent)


@dataclass(frozen=True)
class Report:
    site: Site
    key: str
    pause: float

    def ask(self) -> Answer:
        body = {"page": 2, "simulate": {"sleep": self.pause}}
        return self.site.alice.post("/exports/", body, key=self.key)

    @property
    def address(self) -> str:
        return str(self.ask().headers["Location"])

    def poll(self) -> Answer:
        return self.site.alice.get(self.address)

    def told(self) -> dict[str, Any]:
        """What the poller sees while it is not done."""
        answer = self.poll()
        assert answer.status == 202, answer.body
        assert int(answer.headers["Retry-After"]) > 0
        seen: dict[str, Any] = answer.json()
        return seen

    def done(self) -> Answer | None:
        answer = self.ask()
        assert answer.status in (201, 202), answer.body
        return answer if answer.status == 201 else None

    def pages(self) -> list[int]:
        """The pages that were written, in the order in which they were."""
        sql = """SELECT p.number FROM payments_exportpage p WHERE p.export_id IN
            (SELECT MAX(e.id) FROM payments_export e) ORDER BY p.id"""
        return [number for (number,) in self.site.rows(sql)]


@pytest.fixture
def report(site: Site, messages: Broker) -> Report:
    return Report(site, f'"{uuid4()}"', 0.5)


def is_the_report(report: Report, address: str, answer: Answer) -> bool:
    """Each page once, every payment in it, and the same bytes by both ways."""
    polled = stored_in(report.site.alice.get(address))
    assert (polled.status, polled.body) == (201, answer.body)
    assert answer.headers["Content-Type"] == "text/csv"
    own = "FROM payments_payment p JOIN auth_user u ON u.id = p.owner_id WHERE u.username = 'alice'"
    expected = report.site.rows(f"SELECT p.customer, COUNT(*), SUM(p.amount) {own} GROUP BY p.customer")
    assert {tuple(line) for line in csv.reader(answer.body.decode().splitlines()[1:])} == {
        (customer, str(count), str(amount)) for customer, count, amount in expected
    }
    return report.pages() == list(range(1, len(report.pages()) + 1)) and len(report.pages()) > 2


def test_pollers_see_it_wait_then_how_far_it_is_then_the_report(
    report: Report, messages: Broker, quick: dict[str, str]
) -> None:
    asked = report.ask()
    assert (asked.status, asked.headers["Retry-After"].isdecimal()) == (202, True)
    address = asked.headers["Location"]
    waiting = report.told()
    assert (waiting["status"], waiting["steps"]) == ("pending", [])
    assert report.site.bob.get(address).status == 404
    assert messages.waiting() == 1

    seen: list[tuple[int, int]] = []
    with worker(messages, quick):

        def done() -> Answer | None:
            answer = report.site.alice.get(address)
            if answer.status == 202 and "progress" in answer.json():
                seen.append((answer.json()["progress"]["done"], answer.json()["progress"]["total"]))
            return stored_in(answer) if answer.status == 200 else None

        answer = wait_until(done)
    assert answer
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, "the progress was seen to grow"
    assert is_the_report(report, address, answer)


@pytest.mark.soak
def test_a_worker_that_is_killed_in_the_middle_is_replaced(
    report: Report, messages: Broker, quick: dict[str, str]
) -> None:
    address = report.address
    with worker(messages, quick) as first:
        wait_until(lambda: 1 in report.pages())
        first.kill()
    messages.empty()
    before = report.pages()

    with worker(messages, quick), beat(messages, quick):
        answer = wait_until(report.done)

    assert answer
    assert before
    assert is_the_report(report, address, answer)
