"""Unknown outcomes that nobody asks about reach a person at once, and become dead letters after a stated time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client
from django.urls import reverse

from django_idempotency import maintenance, signals
from django_idempotency.console.dashboard.numbers import clear_cache
from django_idempotency.maintenance import health
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Inconclusive, reconciler
from tests.kit.console import LIST, RIGHTS, act, client_of, confirm, page_of, person, said
from tests.kit.records import OPERATION, age, change, claimed, doubtful, events, row_of, status_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("registrations"), pytest.mark.vendor]


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator", *RIGHTS))


def killed_before_it_began() -> IdempotencyKey:
    """A request for an operation whose process died between the claim and the first step: the record has no name."""
    attempt = claimed(on_lost_lease="resume")
    age(attempt, "locked_until")
    maintenance.sweep()
    change(attempt, grace_until=F("created_at") - timedelta(hours=1))
    assert (row_of(attempt).status, row_of(attempt).run_name) == ("unknown", "")
    return row_of(attempt)


def doctor() -> list[dict[str, Any]]:
    output = StringIO()
    with pytest.raises(CommandError):
        call_command("idempotency_doctor", "--json", stdout=output)
    found: list[dict[str, Any]] = json.loads(output.getvalue())["findings"]
    return found


@pytest.mark.parametrize("lost", [killed_before_it_began, doubtful])
def test_it_is_reported_for_a_person_at_once(operator: Client, lost: Callable[[], Any]) -> None:
    lost()
    (found,) = [each for each in doctor() if each["code"] == "unknown-unattended"]
    assert found["count"] == 1
    assert "has no reconciler" in found["text"]
    assert (health().unattended, health().as_json()["healthy"]) == (1, False)
    clear_cache()
    assert "has no reconciler" in operator.get(reverse("admin:django_idempotency_dashboard")).content.decode()
    clear_cache()
    assert "tests.records" in operator.get(f"{LIST}?needs=unattended").content.decode()


def test_one_that_is_asked_about_is_not_reported(operator: Client) -> None:
    doubtful()
    reconciler(OPERATION)(lambda record: Inconclusive())
    assert "unknown-unattended" not in {each["code"] for each in doctor()}
    assert health().unattended == 0
    assert "tests.records</" not in operator.get(f"{LIST}?needs=unattended").content.decode().split("<tbody")[-1]


def test_its_page_says_so_and_offers_no_question(operator: Client) -> None:
    attempt = doubtful()
    page = operator.get(page_of(attempt.call.id))
    assert "No reconciler is registered for" in page.content.decode()
    assert "ask-reconciler" not in [action.name for action in page.context["actions"]]
    question = operator.get(act("ask-reconciler", attempt.call.id))
    assert "There is no reconciler for" in question.content.decode()
    assert question.context["ready"] is False


def test_a_reset_dead_letter_without_a_reconciler(operator: Client) -> None:
    attempt = doubtful()
    change(attempt, status="dead_letter", reconcile_after=None)
    assert "there is no reconciler" in said(confirm(operator, act("try-again", attempt.call.id)))


@pytest.mark.parametrize("lost", [killed_before_it_began, doubtful])
def test_after_the_stated_time_it_is_a_dead_letter_with_a_reason(settings: Any, lost: Callable[[], Any]) -> None:
    settings.IDEMPOTENCY = {"UNATTENDED_LIMIT": timedelta(hours=3)}
    lost()
    record = IdempotencyKey.objects.get().id
    change(record, last_run_at=F("created_at") - timedelta(hours=2))
    assert maintenance.reconcile() == {"postponed": 1}
    change(record, last_run_at=F("created_at") - timedelta(hours=4), reconcile_after=F("created_at"))
    assert maintenance.reconcile() == {"dead_letter": 1}
    assert events(record)[-1] == ("T12", "no reconciler for 'tests.records'")
    assert health().dead_letters == 1


def test_work_whose_code_no_process_has() -> None:
    attempt = doubtful()
    change(attempt, run_name="removed", on_lost_lease="resume", progress='{"version":1,"steps":[]}')
    age(attempt, "last_run_at")
    assert maintenance.resume() == {"dead_letter": 1}
    assert events(attempt)[-1] == ("T12", "no code for 'removed'")


def test_without_a_limit_it_waits_for_ever(settings: Any) -> None:
    settings.IDEMPOTENCY = {"UNATTENDED_LIMIT": None}
    attempt = doubtful()
    age(attempt, "last_run_at")
    assert maintenance.reconcile() == {"postponed": 1}
    assert status_of(attempt) == "unknown"


def test_a_metric_counts_each_check_without_a_reconciler() -> None:
    heard: list[str] = []

    def receive(record: Any, reason: str, **payload: Any) -> None:
        heard.append(reason)

    signals.unattended.connect(receive)
    try:
        doubtful()
        maintenance.reconcile()
    finally:
        signals.unattended.disconnect(receive)
    assert heard == ["no reconciler for 'tests.records'"]
