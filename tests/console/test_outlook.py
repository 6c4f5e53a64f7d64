"""Who acts on a record next: pages and commands say the same, and it is what happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core.management import CommandError
from django.db.models import F
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from django_idempotency import Status, maintenance
from django_idempotency.console.dashboard.numbers import clear_cache
from django_idempotency.console.outlook import describe_next, describe_outlook
from django_idempotency.console.wording import STATES
from django_idempotency.core.decisions import InDoubt
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin
from django_idempotency.flow.finish import doubt
from django_idempotency.maintenance import health
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.gauges import GAUGES
from django_idempotency.reconciliation import Inconclusive, reconciler
from django_idempotency.store.gauges import read_gauges
from tests.kit.calls import a_call
from tests.kit.calls import claimed as claim
from tests.kit.console import LIST, RIGHTS, client_of, page_of, person
from tests.kit.records import age, change, dead_letter, id_of, status_of
from tests.management.terminals import said

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("registrations")]

OPERATION = "tests.outlook"


def lost(operation: str = OPERATION, **policy: Any) -> Attempt:
    """An attempt that failed under this policy, so that its outcome is unknown."""
    attempt = claim(a_call("lost", operation=operation, **policy))
    assert doubt(attempt, "Timeout")
    return attempt


def restarted() -> Attempt:
    return lost(on_lost_lease="restart")


def killed_before_it_began() -> Attempt:
    return lost(on_lost_lease="resume")


def asked_about(attempt: Attempt) -> Attempt:
    reconciler(OPERATION)(lambda record: Inconclusive())
    return attempt


def continued() -> Attempt:
    attempt = lost(on_lost_lease="resume")
    change(attempt, run_name="tests.without_code", progress='{"version":1,"steps":[]}')
    return attempt


def unreadable() -> Attempt:
    attempt = lost()
    change(attempt, run_name="tests.without_code", progress="no JSON")
    return attempt


RUNS, CONTINUES, WAITS = (
    "A retry of the client runs the work again.",
    "The operation continues after the last step",
    "Nothing will run until it is settled.",
)
CASES: dict[str, tuple[Callable[[], Attempt], str, str]] = {
    "restart": (restarted, RUNS, "waits for a retry of the client, or becomes a dead letter in"),
    "restart, asked": (lambda: asked_about(restarted()), RUNS, "(try 1 of 10)"),
    "killed": (killed_before_it_began, RUNS, "waits for a retry of the client"),
    "continued": (continued, CONTINUES, "the resumer"),
    "unknown": (lost, WAITS, "No reconciler is registered for tests.outlook."),
    "unknown, asked": (lambda: asked_about(lost()), WAITS, "(try 1 of 10)"),
    "unreadable": (unreadable, WAITS, "No reconciler is registered for"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_and_the_command_say_the_same(operator: Client, case: str) -> None:
    make, meaning, following = CASES[case]
    attempt = make()
    page = unescape(operator.get(page_of(id_of(attempt))).content.decode())
    story = said("idempotency_inspect", str(id_of(attempt)))
    for text in (page, story):
        assert meaning in text
        assert following in text
        assert (WAITS in text) is (meaning == WAITS)
    (shown,) = re.findall(r"^  next +(.*)$", story, re.MULTILINE)
    assert re.split(r"\d", shown)[0] in page


@pytest.mark.parametrize(
    ("columns", "effect", "offered"),
    [
        ({"wrote": True, "deferred": True}, "possible", False),
        ({"wrote": False}, "possible", True),
        ({"status": "failed_retryable", "steps_done": 1}, "possible", False),
        ({"status": "failed_retryable", "steps_done": 0}, "none", False),
    ],
)
def test_an_operator_is_told_of_the_effect_and_offered_no_second_one(
    operator: Client, columns: dict[str, Any], effect: str, offered: bool
) -> None:
    attempt = dead_letter()
    change(attempt, **columns)
    page = unescape(operator.get(page_of(id_of(attempt))).content.decode())
    story = said("idempotency_inspect", str(id_of(attempt)))
    for text in (page, story):
        assert f"{effect}, " in text
        assert ("Mark as not executed" in text) is offered
        assert ("A part of it may have taken effect." in text) is bool(columns.get("steps_done"))
    if "wrote" in columns and not offered:
        with pytest.raises(CommandError, match="committed writes"):
            said("idempotency_resolve", str(id_of(attempt)), "--not-executed", "--by", "ops", "--reason", "seen")


@pytest.mark.parametrize("case", CASES)
def test_the_lists_say_the_same(operator: Client, case: str) -> None:
    attempt = CASES[case][0]()
    found = describe_next(IdempotencyKey.objects.with_time().get(pk=id_of(attempt)))
    shortest = re.split(r"\d", found)[0].strip()
    assert shortest in unescape(operator.get(LIST).content.decode())
    assert shortest in said("idempotency_list")


@pytest.mark.parametrize("case", CASES)
def test_a_retry_does_what_is_said_of_it(case: str) -> None:
    make, meaning, _following = CASES[case]
    attempt = make()
    assert isinstance(begin(attempt.call), Attempt if meaning == RUNS else InDoubt)  # no code for the continued one


@pytest.mark.parametrize(
    ("ago", "limit", "text"),
    [
        (1, 24, "becomes a dead letter in 23 h"),
        (25, 24, "is about to become a dead letter"),
        (25, None, "waits for a retry of the client"),
    ],
)
def test_how_long_a_retry_may_still_come(settings: Settings, ago: int, limit: int | None, text: str) -> None:
    settings.IDEMPOTENCY = {"UNATTENDED_LIMIT": None if limit is None else timedelta(hours=limit)}
    attempt = restarted()
    then = F("created_at") - timedelta(hours=ago)
    change(attempt, last_run_at=then, grace_until=then)
    found = describe_outlook(IdempotencyKey.objects.with_time().get(pk=id_of(attempt)))
    assert text in found.text
    assert found.is_late is False
    assert found.text.endswith(text) or limit == 24


def count_unattended() -> float:
    (gauge,) = (each for each in GAUGES if each.name == "unattended")
    return sum(number for _label, number in gauge.read(read_gauges(600, "default")))


@pytest.mark.parametrize(("make", "number"), [(restarted, 0), (killed_before_it_began, 1), (lost, 1)])
def test_work_that_a_retry_restarts_needs_no_person(operator: Client, make: Callable[[], Attempt], number: int) -> None:
    """The resumer was promised of the second one, and cannot continue it."""
    make()
    assert (health().unattended, count_unattended()) == (number, number)
    assert operator.get(f"{LIST}?needs=unattended").context["cl"].result_count == number
    clear_cache()
    report = operator.get(reverse("admin:django_idempotency_dashboard")).content.decode()
    clear_cache()
    assert ("has no reconciler" in report) is bool(number)


def test_what_can_be_done_by_hand_is_still_offered(operator: Client) -> None:
    attempt = restarted()
    page = operator.get(page_of(id_of(attempt)))
    assert {each.name for each in page.context["actions"]} == {"resolve-landed", "resolve-not-executed"}
    assert page.context["runbook"] == [], "there is nothing to find out"


def test_progress_that_cannot_be_read_breaks_no_page(operator: Client) -> None:
    attempt = unreadable()
    assert operator.get(page_of(id_of(attempt))).status_code == 200
    assert "resolve-landed" in operator.get(page_of(id_of(attempt))).content.decode()


def test_a_lost_response_without_a_retry_reaches_an_operator_in_the_end() -> None:
    attempt = restarted()
    age(attempt, "last_run_at", "grace_until")
    maintenance.reconcile()
    assert status_of(attempt) == "dead_letter"
    assert isinstance(begin(attempt.call), InDoubt)
    row = IdempotencyKey.objects.with_time().get(pk=id_of(attempt))
    assert describe_outlook(row).meaning == STATES[Status(row.status)].meaning
    assert client_of(person("root", *RIGHTS)).get(page_of(row.pk)).context["runbook"]
