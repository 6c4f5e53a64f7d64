"""A pooler in transaction mode hands one client's prepared statements to another; the doctor says so."""

from __future__ import annotations

import pytest

from django_idempotency.monitoring.findings import Code, describe
from django_idempotency.monitoring.health import examine
from django_idempotency.store.pooler import find_unsafe_options
from tests.kit.databases import another_alias
from tests.kit.poolers import pooler as pooler
from tests.kit.poolers import reached_by

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.vendor]


def test_prepared_statements_behind_a_pooler_are_a_finding(pooler: int) -> None:
    with reached_by(pooler, OPTIONS={"prepare_threshold": 1}, DISABLE_SERVER_SIDE_CURSORS=True) as using:
        (found,) = [each for each in examine(using) if each.code is Code.POOLER]
    assert "prepare_threshold" in describe(found)
    assert "cursors" not in describe(found)


def test_server_side_cursors_behind_a_pooler_are_a_finding(pooler: int) -> None:
    with reached_by(pooler) as using:
        (found,) = [each for each in examine(using) if each.code is Code.POOLER]
    assert "DISABLE_SERVER_SIDE_CURSORS" in describe(found)
    assert "prepare_threshold" not in describe(found), "nothing is prepared unless the project asks for it"


def test_a_pooler_alone_is_none(pooler: int) -> None:
    with reached_by(pooler, DISABLE_SERVER_SIDE_CURSORS=True) as using:
        assert find_unsafe_options(using) == ()


def test_nor_are_the_options_without_a_pooler() -> None:
    with another_alias("plain") as using:
        assert find_unsafe_options(using) == ()
    assert Code.POOLER not in {each.code for each in examine("default")}
