from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.kit.processes import Site

pytestmark = pytest.mark.vendor

TRANSFER = {"from": "savings", "to": "current", "amount": 300}


def entries(site: Site, reference: str) -> list[tuple[Any, ...]]:
    sql = "SELECT account, amount FROM payments_ledgerentry WHERE reference = %s ORDER BY amount"
    return site.rows(sql, reference)


def count(site: Site) -> int:
    return int(site.rows("SELECT count(*) FROM payments_ledgerentry")[0][0])


def test_a_transfer_writes_two_rows_and_calls_no_service(site: Site) -> None:
    answer = site.alice.post("/transfers/", TRANSFER)

    assert answer.status == 201
    reference = answer.json().pop("reference")
    assert answer.json() == {"reference": reference, **TRANSFER}
    assert entries(site, reference) == [("savings", -300), ("current", 300)]
    assert site.charges() == []


def test_the_same_transfer_twice_moves_the_money_once(site: Site) -> None:
    before = count(site)
    key = f'"{uuid4()}"'

    first, second = (site.alice.post("/transfers/", TRANSFER, key=key) for _ in range(2))

    assert first.body == second.body
    assert second.headers["Idempotency-Replayed"] == "true"
    assert count(site) == before + 2


@pytest.mark.parametrize("failure", ["before", "after"])
def test_a_transfer_that_fails_writes_nothing(site: Site, failure: str) -> None:
    before = count(site)
    assert site.alice.post("/transfers/", {**TRANSFER, "simulate": {"fail": failure}}).status == 500
    assert count(site) == before


def test_a_simulated_status_is_answered_after_the_transfer(site: Site) -> None:
    before = count(site)
    assert site.alice.post("/transfers/", {**TRANSFER, "simulate": {"status": 204}}).status == 204
    assert count(site) == before + 2


@pytest.mark.parametrize("change", [{"from": ""}, {"to": "savings"}, {"amount": 0}, {"simulate": "slow"}], ids=str)
def test_a_wrong_field_writes_nothing(site: Site, change: dict[str, Any]) -> None:
    before = count(site)
    assert site.alice.post("/transfers/", {**TRANSFER, **change}).status == 400
    assert count(site) == before


def test_without_a_token_nothing_is_written(site: Site) -> None:
    before = count(site)
    assert site.anyone.post("/transfers/", TRANSFER).status == 401
    assert count(site) == before


def test_reading_is_not_offered(site: Site) -> None:
    assert site.alice.get("/transfers/").status == 405
