"""A ride whose process is killed anywhere ends with every step done once, by a retry or by the resumer alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from testproject.http import Answer, NoAnswer
from testproject.payments.operations import RIDE_STEPS
from testproject.payments.rides import KILLED_AT
from testproject.servers import ROOT
from tests.acceptance.subjects import is_replay, let_the_lease_run_out, new, quoted
from tests.kit.processes import Site, running_site

pytestmark = pytest.mark.vendor

UNMARKED_CHARGE = "at the end of charge_created"  # the card was charged, and the record does not say so yet
OTHERS = [kill for kill in KILLED_AT if kill != UNMARKED_CHARGE]
LEASE = {"IDEMPOTENCY_LEASE_SECONDS": "5"}
ENVIRONMENT = {**LEASE, "DATABASE_CONN_MAX_AGE": "0", "GATEWAY_TIMEOUT_SECONDS": "60"}


@pytest.fixture(scope="module")
def rides(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Site]:
    """Several workers: while one is killed and started again, another takes the next request."""
    folder = tmp_path_factory.mktemp("rides")
    with running_site(folder, http_database, workers=3, threads=4, environment=ENVIRONMENT) as site:
        yield site


@pytest.fixture
def site(rides: Site, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    rides.reset()
    with django_db_blocker.unblock():
        yield rides


@dataclass(frozen=True)
class Booking:
    """One client's request, to be sent as often as needed; it leaves from a place of its own, to be found by."""

    site: Site
    key: str
    origin: str
    kill: str = ""

    def send(self) -> Answer:
        simulate = {"simulate": {"kill": self.kill}} if self.kill else {}
        body = {"origin": self.origin, "target": "Ulm", "amount": 1200, **simulate}
        return self.site.alice.post("/rides/", body, key=quoted(self.key))

    def killed(self) -> Booking:
        with pytest.raises(NoAnswer):
            self.send()
        return self

    def progress(self) -> tuple[str, str]:
        """Status and recovery point of the record."""
        sql = "SELECT k.status, k.recovery_point FROM idempotency_key k WHERE k.key = %s"
        ((status, point),) = self.site.rows(sql, self.key)
        return status, point

    def column(self, sql: str) -> list[Any]:
        """A column of this booking's rides, or of what belongs to them."""
        return [value for (value,) in self.site.rows(f"{sql} WHERE r.origin = %s", self.origin)]

    def charges(self) -> list[str]:
        """What the gateway charged for this booking's rides, however many there are."""
        customers = {f"ride {number}" for number in self.column("SELECT r.id FROM payments_ride r")}
        return [charge["id"] for charge in self.site.charges() if charge["customer"] in customers]


def booking(site: Site, kill: str = "") -> Booking:
    return Booking(site, new(), new(), kill)


def recovery_point(kill: str) -> str:
    """The last step whose marker was written before the process was killed there."""
    where, _, step = kill.rpartition(" ")
    finished = RIDE_STEPS.index(step) + (where == "after")
    return RIDE_STEPS[finished - 1] if finished else ""


def answered_as_if_nothing_had_happened(booking: Booking, answer: Answer) -> bool:
    """The rows and the charge are there once, and the answer names them."""
    rides = booking.column("SELECT r.id FROM payments_ride r")
    events = booking.column("SELECT e.happened FROM payments_rideevent e JOIN payments_ride r ON r.id = e.ride_id")
    receipts = booking.column("SELECT q.id FROM payments_receipt q JOIN payments_ride r ON r.id = q.ride_id")
    assert (len(rides), events, len(receipts)) == (1, ["booked"], 1)
    assert booking.charges() == booking.column("SELECT r.charge FROM payments_ride r")
    assert len(booking.charges()) == 1
    expected = {"origin": booking.origin, "target": "Ulm", "amount": 1200, "charge": booking.charges()[0]}
    assert answer.json() == {"ride": rides[0], **expected, "receipt": receipts[0]}
    return answer.status == 201 and booking.progress() == ("completed", RIDE_STEPS[-1])


def test_an_undisturbed_ride(site: Site) -> None:
    ride = booking(site)
    answer = ride.send()
    assert answered_as_if_nothing_had_happened(ride, answer)
    assert is_replay(ride.send(), answer)
    assert len(site.charges()) == 1


@pytest.mark.parametrize("kill", [UNMARKED_CHARGE, *(pytest.param(kill, marks=pytest.mark.soak) for kill in OTHERS)])
def test_killed_anywhere_a_retry_goes_on_from_the_last_step(site: Site, kill: str) -> None:
    ride = booking(site, kill).killed()
    assert ride.progress() == ("in_progress", recovery_point(kill))
    let_the_lease_run_out(site, ride.key)

    answer = ride.send()

    assert answered_as_if_nothing_had_happened(ride, answer)
    assert is_replay(ride.send(), answer)


@pytest.mark.parametrize("places", [[UNMARKED_CHARGE], pytest.param(KILLED_AT, marks=pytest.mark.soak)], ids=len)
def test_killed_anywhere_the_resumer_alone_brings_it_to_its_end(site: Site, places: list[str]) -> None:
    rides = [booking(site, kill).killed() for kill in places]
    for ride in rides:
        let_the_lease_run_out(site, ride.key)

    assert command(site, "sweep")
    assert [ride.progress() for ride in rides] == [("unknown", recovery_point(kill)) for kill in places]
    assert command(site, "resume") == {"landed": len(rides)}

    assert len(site.charges()) == len(rides)
    for ride in rides:
        answer = ride.send()
        assert answer.headers["Idempotency-Replayed"] == "true"
        assert answered_as_if_nothing_had_happened(ride, answer), ride.kill


def command(site: Site, job: str) -> dict[str, int]:
    environment = {**os.environ, **LEASE, "DATABASE_URL": site.database_url, "GATEWAY_URL": site.gateway.url}
    line = [sys.executable, "manage.py", f"idempotency_{job}", "--json"]
    finished = subprocess.run(line, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    counts: dict[str, int] = json.loads(finished.stdout)
    return counts
