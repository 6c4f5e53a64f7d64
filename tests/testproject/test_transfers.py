"""Transfers: an atomic view, which writes two rows or none."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.kit.processes import Site

pytestmark = pytest.mark.vendor

TRANSFER = {"from": "savings", "to": "current", "amount": 300}


def count(site: Site) -> int:
    return int(site.rows("SELECT count(*) FROM payments_ledgerentry")[0][0])


def test_the_same_transfer_twice_moves_the_money_once(site: Site) -> None:
    key = f'"{uuid4()}"'

    first, second = (site.alice.post("/transfers/", TRANSFER, key=key) for _ in range(2))

    reference = first.json().pop("reference")
    assert (first.status, first.json()) == (201, {"reference": reference, **TRANSFER})
    assert (second.body, second.headers["Idempotency-Replayed"]) == (first.body, "true")
    sql = "SELECT account, amount FROM payments_ledgerentry WHERE reference = %s ORDER BY amount"
    assert site.rows(sql, reference) == [("savings", -300), ("current", 300)]
    assert site.charges() == [], "it calls no service"


@pytest.mark.parametrize(
    ("change", "status", "written"),
    [
        ({"simulate": {"fail": "before"}}, 500, 0),
        ({"simulate": {"fail": "after"}}, 500, 0),
        ({"simulate": {"status": 204}}, 204, 2),
        ({"to": "savings"}, 400, 0),
    ],
    ids=str,
)
def test_a_transfer_that_fails_writes_nothing(site: Site, change: dict[str, Any], status: int, written: int) -> None:
    before = count(site)
    assert site.alice.post("/transfers/", {**TRANSFER, **change}).status == status
    assert count(site) == before + written
