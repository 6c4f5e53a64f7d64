from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
import stripe

from django_idempotency.core.refs import parse_record_id
from testproject.http import Answer
from tests.kit.processes import Site

CARD: Any = {"amount": 2500, "currency": "eur", "source": "tok_visa"}
DEARER: Any = {**CARD, "amount": 9900}
NOTHING: Any = {**CARD, "amount": 0}


def client(site: Site, key: str = "sk_test_alice") -> stripe.StripeClient:
    return stripe.StripeClient(key, base_addresses={"api": site.service.url}, max_network_retries=0)


def post(site: Site, **form: Any) -> Answer:
    return send(site, form, key="")


def send(site: Site, form: dict[str, Any], *, key: str | None) -> Answer:
    return site.anyone.post_bytes(
        "/v1/charges",
        urlencode(form).encode(),
        key=key,
        content_type="application/x-www-form-urlencoded",
        authorization="Bearer sk_test_alice",
    )


def test_the_official_client_creates_and_reads_a_charge(site: Site) -> None:
    charge = client(site).v1.charges.create(CARD)

    assert isinstance(charge, stripe.Charge)
    assert (charge.amount, charge.currency, charge.status, charge.paid) == (2500, "eur", "succeeded", True)
    assert [seen["id"] for seen in site.charges()] == [charge.id]
    assert client(site).v1.charges.retrieve(charge.id).to_dict() == charge.to_dict()


def test_a_charge_points_at_the_record_of_its_request_where_it_has_a_key(site: Site) -> None:
    client(site).v1.charges.create(CARD, options={"idempotency_key": str(uuid4())})
    send(site, CARD, key=None)
    first, second = site.charges()
    assert parse_record_id(first["key"]) == site.record_of_payment(first["id"])
    assert first["key"].endswith("-charge")
    assert (second["key"], site.record_of_payment(second["id"])) == (None, None)


def test_the_same_key_twice_charges_once(site: Site) -> None:
    key = str(uuid4())
    charges = [client(site).v1.charges.create(CARD, options={"idempotency_key": key}) for _ in range(2)]

    assert charges[0].to_dict() == charges[1].to_dict()
    assert len(site.charges()) == 1


def test_the_same_key_for_another_charge_is_stripes_idempotency_error(site: Site) -> None:
    key = str(uuid4())
    client(site).v1.charges.create(CARD, options={"idempotency_key": key})

    with pytest.raises(stripe.IdempotencyError) as caught:
        client(site).v1.charges.create(DEARER, options={"idempotency_key": key})
    assert caught.value.http_status == 400
    assert len(site.charges()) == 1


def test_an_invalid_charge_leaves_the_key_free(site: Site) -> None:
    key = str(uuid4())
    with pytest.raises(stripe.InvalidRequestError):
        client(site).v1.charges.create(NOTHING, options={"idempotency_key": key})

    assert client(site).v1.charges.create(CARD, options={"idempotency_key": key}).amount == CARD["amount"]


def test_somebody_elses_charge_does_not_exist(site: Site) -> None:
    charge = client(site).v1.charges.create(CARD)

    with pytest.raises(stripe.InvalidRequestError) as caught:
        client(site, "sk_test_bob").v1.charges.retrieve(charge.id)
    assert (caught.value.http_status, caught.value.code) == (404, "resource_missing")


def test_a_wrong_key_is_an_authentication_error(site: Site) -> None:
    with pytest.raises(stripe.AuthenticationError):
        client(site, "sk_test_nobody").v1.charges.create(CARD)
    assert site.charges() == []


def test_a_declined_card_is_a_card_error(site: Site) -> None:
    site.switch(refuse=True)
    with pytest.raises(stripe.CardError) as caught:
        client(site).v1.charges.create(CARD)
    assert caught.value.code == "card_declined"


def test_a_lost_answer_is_an_api_error(site: Site) -> None:
    site.switch(lose_answer=True)
    with pytest.raises(stripe.APIError) as caught:
        client(site).v1.charges.create(CARD)
    assert caught.value.http_status == 504


def test_a_missing_field_is_named_in_stripes_shape(site: Site) -> None:
    for name, named in (("amount", "amount"), ("source", "customer")):
        answer = post(site, **{key: value for key, value in CARD.items() if key != name})
        error = answer.json()["error"]
        assert (answer.status, error["type"], error["param"]) == (400, "invalid_request_error", named)
    assert site.charges() == []


def test_simulations_arrive_in_brackets(site: Site) -> None:
    assert post(site, **CARD, **{"simulate[status]": 503}).status == 503
    assert post(site, **CARD, **{"simulate[fail]": "before"}).status == 503, "proven not executed"
    assert post(site, **CARD, **{"simulate[fail]": "never"}).status == 400
    assert len(site.charges()) == 1
