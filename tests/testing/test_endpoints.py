"""A right endpoint passes every check; a wrong one fails the one that is about its defect, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_idempotency.testing import (
    AsyncIdempotentClient,
    IdempotentClient,
    NotIdempotent,
    UntestedWarning,
    assert_idempotent,
)
from django_idempotency.testing.endpoint_checks import ENDPOINT_CHECKS
from django_idempotency.testing.messages import DEFECTS
from testproject.payments.models import LedgerEntry
from tests.testing import home_made, views

pytestmark = pytest.mark.vendor

UNTESTED = ["parallel"]  # in a test case, whose transaction no second connection sees


def post(where: str, amount: int = 5) -> Callable[[Any], object]:
    return lambda client: client.post(f"/{where}", {"amount": amount}, "application/json")


def test_a_right_layer_passes(alice: IdempotentClient, bob: IdempotentClient) -> None:
    report = assert_idempotent(
        post("Layer"), client=alice, other=bob, provider=home_made.PROVIDER, skip=[*UNTESTED, "in flight"]
    )
    assert report.checked == [name for name in ENDPOINT_CHECKS if name not in ("in flight", "parallel")]
    assert report.untested == {}


@pytest.mark.parametrize("layer", home_made.WRONG, ids=lambda layer: layer.__name__)
def test_a_wrong_layer_is_told_its_defect(layer: type, alice: IdempotentClient, bob: IdempotentClient) -> None:
    with pytest.raises(NotIdempotent) as raised:
        assert_idempotent(
            post(layer.__name__), client=alice, other=bob, effects=count_charges, provider=home_made.PROVIDER
        )
    assert raised.value.defect == home_made.WRONG[layer]


def count_charges() -> int:
    return len(home_made.PROVIDER.ledger)


@pytest.mark.parametrize("name", [*views.RIGHT, "ninja/order"])
def test_a_protected_endpoint_passes(name: str, alice: IdempotentClient, bob: IdempotentClient) -> None:
    skipped = [*UNTESTED, "in flight"] if "atomic" in name else UNTESTED
    report = assert_idempotent(post(name), client=alice, other=bob, skip=skipped)
    assert report.checked == [check for check in ENDPOINT_CHECKS if check not in skipped]


def test_a_middleware_protects_as_well(alice: IdempotentClient, bob: IdempotentClient, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_idempotency.middleware.IdempotencyMiddleware"]
    assert_idempotent(post("middleware"), client=alice, public=True, skip=UNTESTED)


@pytest.mark.parametrize("name", views.WRONG)
def test_a_wrong_policy_is_told_its_defect(name: str, alice: IdempotentClient, bob: IdempotentClient) -> None:
    provider = home_made.PROVIDER if name == "released" else None
    with pytest.raises(NotIdempotent) as raised:
        assert_idempotent(post(name), client=alice, other=bob, provider=provider)
    assert raised.value.defect == views.WRONG[name][1]


def test_what_cannot_be_tested_is_said_loudly(alice: IdempotentClient) -> None:
    with pytest.warns(UntestedWarning) as warned:
        report = assert_idempotent(post("atomic"), client=alice)
    assert list(report.untested) == ["other user", "in flight", "parallel"]
    assert [str(each.message).split(": ")[1] for each in warned] == list(report.untested)
    assert "TransactionTestCase" in str(warned[-1].message)


def test_a_check_that_does_not_exist_cannot_be_skipped() -> None:
    with pytest.raises(ValueError, match="no check paralel"):
        assert_idempotent(post("leased"), skip=["paralel"])


@pytest.mark.parametrize("client", [Client(), AsyncIdempotentClient()], ids=["no keys", "async"])
def test_a_client_of_another_kind_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match="IdempotentClient"):
        assert_idempotent(post("leased"), client=client)


@pytest.mark.django_db
def test_an_endpoint_that_refuses_is_not_tested_any_further() -> None:
    with pytest.raises(NotIdempotent, match="first_failed"):
        assert_idempotent(post("Layer"))


def test_an_effect_that_cannot_be_seen_is_asked_for(alice: IdempotentClient) -> None:
    with pytest.raises(NotIdempotent, match="effects"):
        assert_idempotent(post("leased"), client=alice, effects=lambda: 0)


def test_every_defect_has_its_sentences() -> None:
    error = NotIdempotent("key_reused", "this")
    assert re.findall(r"^  ([\w ]+):", str(error), re.MULTILINE) == ["Seen", "Why it matters", "What to do", "More"]
    assert all(each.title and each.why and each.remedy for each in DEFECTS.values())


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
class TestSecondConnections:
    @pytest.fixture(autouse=True)
    def _server(self) -> None:
        if not connection.features.test_db_allows_multiple_connections:
            pytest.skip("this test database has one connection")

    @pytest.mark.parametrize("name", ["leased", "atomic", "called", "atomic-rest", "async"])
    def test_a_protected_endpoint_passes_everything(
        self, name: str, alice: IdempotentClient, bob: IdempotentClient
    ) -> None:
        assert assert_idempotent(post(name), client=alice, other=bob).checked == list(ENDPOINT_CHECKS)

    def test_several_requests_that_are_all_executed(self, alice: IdempotentClient) -> None:
        checks = [name for name in ENDPOINT_CHECKS if name != "parallel"]
        with pytest.raises(NotIdempotent, match="executed_twice"):
            assert_idempotent(post("race"), client=alice, effects=LedgerEntry.objects.count, skip=checks)
