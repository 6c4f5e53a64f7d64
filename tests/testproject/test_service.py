"""The service inside this process: seed, production, the gateway without a URL, Celery's folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from rest_framework.authtoken.models import Token

from testproject.celery import app
from testproject.gateway.ledger import Ledger
from testproject.gateway.provider import Provider
from testproject.payments import charging
from testproject.payments.models import LedgerEntry, Payment, Ride

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

ORDER = {"amount": 1200, "currency": "EUR", "customer": "ada"}


@pytest.fixture
def ledger(settings: Settings, tmp_path: Path) -> Ledger:
    settings.GATEWAY_URL = ""
    settings.GATEWAY_LEDGER = tmp_path / "ledger.jsonl"
    return Ledger(settings.GATEWAY_LEDGER)


def contents() -> list[Any]:
    return [list(model._default_manager.values_list()) for model in (User, Token, Payment, LedgerEntry)]


def test_seeding_again_changes_nothing(alice: Client) -> None:
    before = contents()
    call_command("seed", verbosity=0)
    assert contents() == before
    assert all(before)


@pytest.mark.django_db
def test_the_people_alone_have_no_payments_yet() -> None:
    call_command("seed", "--people", verbosity=0)
    assert User.objects.filter(username__in=("alice", "bob", "admin")).count() == 3
    assert not Payment.objects.exists()


def test_seeding_puts_a_changed_token_right(alice: Client) -> None:
    Token.objects.filter(user__username="alice").delete()
    Token.objects.create(user=User.objects.get(username="alice"), key="other")
    call_command("seed", verbosity=0)
    assert [token.key for token in Token.objects.filter(user__username="alice")] == ["alice-token"]


def test_the_admin_may_enter_the_admin(alice: Client) -> None:
    assert Client().login(username="admin", password="admin")
    admin = User.objects.get(username="admin")
    assert admin.is_staff
    assert admin.is_superuser


def test_without_a_gateway_url_the_same_gateway_runs_in_process(alice: Client, ledger: Ledger) -> None:
    answer = alice.post("/payments/", ORDER, content_type="application/json")
    assert answer.status_code == 201
    assert [charge.id for charge in ledger.charges()] == [answer.json()["charge"]]


@pytest.mark.parametrize("path", ["/payments/", "/async/payments/", "/rides/"])
def test_simulation_is_refused_in_production(alice: Client, ledger: Ledger, settings: Settings, path: str) -> None:
    settings.PRODUCTION = True
    wishes = {"sleep": 0, "kill": ""}
    body = {**ORDER, "origin": "Bonn", "target": "Ulm", "simulate": wishes}
    answer = alice.post(path, body, content_type="application/json")
    assert (answer.status_code, list(answer.json())) == (400, ["simulate"])
    assert ledger.charges() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic_requests", [False, True])
@pytest.mark.parametrize(
    ("path", "authorization"), [("/payments/", "Token alice-token"), ("/v1/charges", "Bearer sk_test_alice")]
)
def test_no_transaction_is_open_while_the_gateway_charges(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, path: str, authorization: str, atomic_requests: bool
) -> None:
    call_command("seed", verbosity=0)
    seen: list[bool] = []
    provider = Provider(ledger, announce=lambda charge, switches: seen.append(connection.in_atomic_block))
    monkeypatch.setattr(charging, "gateway", lambda: provider)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)

    answer = Client(headers={"Authorization": authorization, "Idempotency-Key": str(uuid4())}).post(path, ORDER)

    assert answer.status_code in (200, 201)
    assert seen == [False]


def test_an_unreachable_gateway_is_a_503(alice: Client, settings: Settings) -> None:
    settings.GATEWAY_URL = "http://127.0.0.1:1"
    assert alice.post("/payments/", ORDER, content_type="application/json").status_code == 503


def test_a_ride_that_did_not_reach_the_gateway_is_not_booked_again(
    alice: Client, ledger: Ledger, settings: Settings
) -> None:
    ride = {"origin": "Bonn", "target": "Ulm"}
    settings.GATEWAY_URL = "http://127.0.0.1:1"
    assert alice.post("/rides/", ride, content_type="application/json").status_code == 503
    settings.GATEWAY_URL = ""
    assert alice.post("/rides/", ride, content_type="application/json").status_code == 201
    assert Ride.objects.count() == 1
    assert len(ledger.charges()) == 1


def test_the_filesystem_broker_has_its_folders() -> None:
    assert app.conf.accept_content == ["json"]
    folders = [value for name, value in app.conf.broker_transport_options.items() if "folder" in name]
    assert len(folders) == 3
    assert all(Path(folder).is_dir() for folder in folders)
