from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_idempotency.core.refs import parse_record_id
from tests.kit.processes import Site
from tests.kit.threads import at_once

ORDER = {"amount": 1200, "currency": "EUR", "customer": "ada"}


def simulated(**wishes: Any) -> dict[str, Any]:
    return {**ORDER, "simulate": wishes}


def payments_of(site: Site, charge: str) -> int:
    return len(site.rows("SELECT id FROM payments_payment WHERE charge = %s", charge))


@pytest.fixture(params=["/payments/", "/async/payments/"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_payment_charges_once_and_says_where_it_is(site: Site, path: str) -> None:
    answer = site.alice.post(path, ORDER)

    assert answer.status == 201
    (charge,) = site.charges()
    paid = answer.json()
    assert (paid["amount"], paid["currency"], paid["customer"]) == (1200, "EUR", "ada")
    assert paid["charge"] == charge["id"]
    assert answer.headers["Location"] == f"/payments/{paid['id']}/"
    assert site.alice.get(answer.headers["Location"]).json() == paid


def test_the_same_request_twice_charges_once(site: Site, path: str) -> None:
    key = f'"{uuid4()}"'
    first, second = (site.alice.post(path, ORDER, key=key) for _ in range(2))

    assert (first.status, second.status) == (201, 201)
    assert first.body == second.body
    assert second.headers["Idempotency-Replayed"] == "true"
    assert len(site.charges()) == 1


def test_a_payment_points_at_the_record_of_its_request(site: Site, path: str) -> None:
    site.alice.post(path, ORDER)
    (charge,) = site.charges()
    assert parse_record_id(charge["key"]) == site.record_of_payment(charge["id"])
    assert charge["key"].endswith("-charge")


def test_without_a_key_nothing_is_charged(site: Site, path: str) -> None:
    answer = site.alice.post(path, ORDER, key=None)

    assert (answer.status, answer.json()["code"]) == (400, "idempotency_key_missing")
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


@pytest.mark.parametrize("authorization", ["", "Token nobody", "Basic YWxpY2U6YWxpY2U="])
def test_without_a_valid_token_nothing_is_charged(site: Site, path: str, authorization: str) -> None:
    answer = site.anyone.post(path, ORDER, headers={"Authorization": authorization} if authorization else {})

    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Token"
    assert site.charges() == []


@pytest.mark.parametrize(
    "change",
    [
        {"amount": 0},
        {"amount": "much"},
        {"amount": None},
        {"currency": "EURO"},
        {"customer": ""},
        {"simulate": 7},
        {"simulate": {"sleep": -1}},
        {"simulate": {"fail": "sometimes"}},
        {"simulate": {"status": 99}},
    ],
    ids=str,
)
def test_a_wrong_field_is_named_and_nothing_is_charged(site: Site, path: str, change: dict[str, Any]) -> None:
    answer = site.alice.post(path, {**ORDER, **change})

    assert answer.status == 400
    assert list(answer.json()) == list(change)
    assert site.charges() == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"", b'{"amount": NaN}', b"\xff"], ids=repr)
def test_a_body_that_is_no_json_object_is_refused(site: Site, path: str, body: bytes) -> None:
    assert site.alice.post_bytes(path, body, content_type="application/json").status == 400
    assert site.charges() == []


def test_failing_before_the_charge_charges_nothing(site: Site, path: str) -> None:
    assert site.alice.post(path, simulated(fail="before")).status == 503
    assert site.charges() == []


@pytest.mark.parametrize(("failure", "status"), [("after", 500), ("timeout", 504)])
def test_failing_after_the_charge_leaves_a_charge_without_a_payment(
    site: Site, path: str, failure: str, status: int
) -> None:
    assert site.alice.post(path, simulated(fail=failure)).status == status
    (charge,) = site.charges()
    assert payments_of(site, charge["id"]) == 0


@pytest.mark.parametrize("status", [200, 204, 402, 503])
def test_a_simulated_status_is_answered_after_the_payment(site: Site, path: str, status: int) -> None:
    answer = site.alice.post(path, simulated(status=status))

    assert answer.status == status
    assert (answer.body == b"") == (status == 204)
    (charge,) = site.charges()
    assert payments_of(site, charge["id"]) == 1


def test_while_a_payment_sleeps_its_charge_exists_and_others_are_served(site: Site, path: str) -> None:
    slow, other = at_once(
        [lambda: site.alice.post(path, simulated(sleep=1.5)), lambda: site.bob.post(path, ORDER)],
    )

    assert (slow.status, other.status) == (201, 201)
    assert slow.json()["id"] > other.json()["id"]
    assert len(site.charges()) == 2


def test_a_declined_card_is_a_402(site: Site, path: str) -> None:
    site.switch(refuse=True)

    answer = site.alice.post(path, ORDER)

    assert (answer.status, answer.json()) == (402, {"detail": "your card was declined"})
    assert site.charges() == []


def test_a_lost_answer_is_a_504_although_the_charge_exists(site: Site, path: str) -> None:
    site.switch(lose_answer=True)

    answer = site.alice.post(path, ORDER)

    assert answer.status == 504
    (charge,) = site.charges()
    assert payments_of(site, charge["id"]) == 0
