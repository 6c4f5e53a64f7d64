"""Payments, with a sync and an async view: one charge for a key, and what is left where something fails."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_idempotency.core.refs import parse_record_id
from tests.kit.processes import Site
from tests.kit.threads import at_once

pytestmark = pytest.mark.parametrize("running", ["gunicorn", "uvicorn"], indirect=True)

ORDER = {"amount": 1200, "currency": "EUR", "customer": "ada"}


def simulated(**wishes: Any) -> dict[str, Any]:
    return {**ORDER, "simulate": wishes}


def payments(site: Site) -> int:
    """How many of the charges became payments."""
    sql = "SELECT id FROM payments_payment WHERE charge = %s"
    return sum(len(site.rows(sql, charge["id"])) for charge in site.charges())


@pytest.fixture(params=["/payments/", "/async/payments/"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_payment_charges_once_says_where_it_is_and_points_at_the_record_of_its_request(site: Site, path: str) -> None:
    key = f'"{uuid4()}"'
    first, second = (site.alice.post(path, ORDER, key=key) for _ in range(2))

    assert (first.status, second.status, second.headers["Idempotency-Replayed"]) == (201, 201, "true")
    assert first.body == second.body
    (charge,) = site.charges()
    paid = first.json()
    assert (paid["amount"], paid["currency"], paid["customer"], paid["charge"]) == (1200, "EUR", "ada", charge["id"])
    assert first.headers["Location"] == f"/payments/{paid['id']}/"
    assert site.alice.get(first.headers["Location"]).json() == paid
    assert parse_record_id(charge["key"]) == site.record_of_payment(charge["id"])
    assert charge["key"].endswith("-charge")


def test_what_is_refused_charges_nothing(site: Site, path: str) -> None:
    assert site.alice.post(path, ORDER, key=None).json()["code"] == "idempotency_key_missing"
    for authorization in ("", "Token nobody"):
        given = {"Authorization": authorization} if authorization else {}
        answer = site.anyone.post(path, ORDER, headers=given)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Token")
    for change in ({"amount": 0}, {"customer": ""}, {"simulate": 7}, {"simulate": {"fail": "sometimes"}}):
        answer = site.alice.post(path, {**ORDER, **change})
        assert (answer.status, list(answer.json())) == (400, list(change))
    assert site.alice.post_bytes(path, b"[]", content_type="application/json").status == 400
    assert site.charges() == []


def test_twenty_keys_at_once_charge_twenty_times(site: Site, path: str) -> None:
    answers = at_once([lambda: site.alice.post(path, ORDER)] * 20)

    assert [answer.status for answer in answers] == [201] * 20
    assert len({charge["id"] for charge in site.charges()}) == 20


def test_the_list_shows_the_newest_first_and_only_ones_own(site: Site) -> None:
    mine = [site.alice.post("/payments/", ORDER).json()["id"] for _ in range(2)]
    theirs = site.bob.post("/payments/", ORDER).json()["id"]

    listed = [payment["id"] for payment in site.alice.get("/payments/").json()]
    assert listed[:2] == mine[::-1]
    assert theirs not in listed
    assert site.alice.get(f"/payments/{theirs}/").status == 404


@pytest.mark.parametrize(
    ("wishes", "status", "left"),
    [
        ({"fail": "before"}, 503, (0, 0)),
        ({"fail": "after"}, 500, (1, 0)),
        ({"fail": "timeout"}, 504, (1, 0)),
        ({"status": 204}, 204, (1, 1)),
        ({"status": 503}, 503, (1, 1)),
    ],
    ids=str,
)
def test_what_a_simulation_leaves(
    site: Site, path: str, wishes: dict[str, Any], status: int, left: tuple[int, int]
) -> None:
    answer = site.alice.post(path, simulated(**wishes))

    assert (answer.status, answer.body == b"") == (status, status == 204)
    assert (len(site.charges()), payments(site)) == left


@pytest.mark.parametrize(
    ("switch", "status", "charges"), [("refuse", 402, 0), ("lose_answer", 504, 1)], ids=["declined", "a lost answer"]
)
def test_what_the_gateway_does_is_told(site: Site, path: str, switch: str, status: int, charges: int) -> None:
    site.switch(**{switch: True})

    assert site.alice.post(path, ORDER).status == status
    assert (len(site.charges()), payments(site)) == (charges, 0)


def test_while_a_payment_sleeps_others_are_served(site: Site, path: str) -> None:
    slow, other = at_once(
        [lambda: site.alice.post(path, simulated(sleep=1)), lambda: site.bob.post(path, ORDER)],
    )

    assert (slow.status, other.status) == (201, 201)
    assert slow.json()["id"] > other.json()["id"]
    assert len(site.charges()) == 2
