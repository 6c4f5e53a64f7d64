from __future__ import annotations

from uuid import uuid4

import pytest

from testproject.payments.rides import KILLED_AT
from tests.kit.processes import Site

pytestmark = pytest.mark.vendor

RIDE = {"origin": "Bonn", "target": "Ulm"}


def test_a_ride_is_charged_once_whatever_is_repeated(site: Site) -> None:
    key = f'"{uuid4()}"'
    first, second = (site.alice.post("/rides/", {**RIDE, "amount": 700}, key=key) for _ in range(2))

    assert first.status == 201
    assert first.body == second.body
    assert second.headers["Idempotency-Replayed"] == "true"
    (charge,) = site.charges()
    assert (charge["amount"], charge["id"]) == (700, first.json()["charge"])
    assert charge["key"].endswith("-charge_created")


def test_a_declined_card_is_the_answer_and_no_receipt_is_owed(site: Site) -> None:
    site.switch(refuse=True)
    key = f'"{uuid4()}"'
    answer = site.alice.post("/rides/", RIDE, key=key)

    assert answer.status == 402
    ride = answer.json()["ride"]
    assert site.rows("SELECT id FROM payments_receipt WHERE ride_id = %s", ride) == []
    events = site.rows("SELECT happened FROM payments_rideevent WHERE ride_id = %s ORDER BY id", ride)
    assert events == [("booked",), ("card declined",)]
    site.switch(refuse=False)
    assert site.alice.post("/rides/", RIDE, key=key).body == answer.body


def test_after_a_timeout_a_retry_goes_on_with_the_same_ride_and_the_same_charge(site: Site) -> None:
    body, key = {**RIDE, "simulate": {"fail": "timeout"}}, f'"{uuid4()}"'
    assert site.alice.post("/rides/", body, key=key).status == 504
    again = site.alice.post("/rides/", body, key=key)

    assert again.status == 201
    assert [charge["id"] for charge in site.charges()] == [again.json()["charge"]]
    assert len(site.charges()) == 1


def test_what_is_refused_books_nothing(site: Site) -> None:
    before = site.rows("SELECT COUNT(*) FROM payments_ride")
    assert site.alice.post("/rides/", RIDE, key=None).status == 400
    assert site.anyone.post("/rides/", RIDE).status == 401
    assert list(site.alice.post("/rides/", {**RIDE, "simulate": {"kill": "somewhere"}}).json()) == ["simulate"]
    assert site.rows("SELECT COUNT(*) FROM payments_ride") == before
    assert site.charges() == []


def test_other_routes_do_not_let_themselves_be_killed(site: Site) -> None:
    order = {"amount": 1200, "currency": "EUR", "customer": "ada", "simulate": {"kill": KILLED_AT[0]}}
    assert site.alice.post("/payments/", order).status == 400
