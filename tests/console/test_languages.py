"""The pages in another language: no English sentence is left, and numbers and lengths of time are written as there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_idempotency import Status
from django_idempotency.console.actions import ACTIONS
from django_idempotency.console.dashboard.numbers import clear_cache
from django_idempotency.console.keyset import PAGE
from django_idempotency.core.audit import Kind
from django_idempotency.core.progress import Moment, Progress
from django_idempotency.core.refs import Ref
from django_idempotency.core.states import Status as States
from django_idempotency.monitoring.findings import Code, Finding, describe
from django_idempotency.store import events
from testproject.history import fill
from tests.kit.catalogue import PACKAGE, PLACEHOLDERS, parse_po
from tests.kit.console import LIST, act, many, page_of, record

pytestmark = pytest.mark.django_db
DASHBOARD = f"{LIST}dashboard/"
SENTENCE = re.compile(r"[A-Za-z]{2,},? [A-Za-z]{2,}")


@pytest.fixture(autouse=True)
def _in_german(settings: Any) -> Iterator[None]:
    settings.LANGUAGE_CODE = "de"
    clear_cache()
    yield
    clear_cache()


@cache
def english() -> re.Pattern[str]:
    """Match every text of two words or more that German has other words for."""
    found = parse_po((PACKAGE / "locale/de/LC_MESSAGES/django.po").read_text())
    texts = {text for texts, each in found.items() for text in texts if text not in each.target}
    sentences = [text for text in texts if SENTENCE.search(PLACEHOLDERS.sub("", text))]
    assert len(sentences) > 300
    patterns = (r"\S.{0,80}?".join(map(re.escape, PLACEHOLDERS.split(text))) for text in sentences)
    return re.compile("|".join(rf"(?<!\w){pattern.strip()}(?!\w)" for pattern in patterns))


def text_of(client: Client, address: str, **options: Any) -> str:
    """Return what is shown or read aloud."""
    page = client.get(address, **options)
    assert page.status_code == 200, address
    shown = re.sub(r"<(style|script|pre).*?</\1>", "", unescape(page.content.decode()), flags=re.DOTALL)
    spoken = re.findall(r'(?:aria-label|title|alt|value)="([^"]*)"', shown)
    return " ".join([re.sub(r"<[^>]*>", "\n", shown), *spoken])


def assert_german(text: str) -> None:
    assert english().findall(text) == []


def test_an_english_sentence_is_found(operator: Client, settings: Any) -> None:
    assert english().findall("Jetzt: pick-up overdue by 3 min 4 s") == ["pick-up overdue by 3"]
    settings.LANGUAGE_CODE = "en"
    assert len(english().findall(text_of(operator, page_of(record(Status.UNKNOWN))))) > 20


def test_the_list(operator: Client) -> None:
    assert_german(text_of(operator, LIST))
    for status in States:
        record(status, key=f"key-{status}")
    many(PAGE + 1, Status.COMPLETED)
    for query in ("", "?q=nothing-here", "?created=hour", "?needs=person", "?status=pending", "?http=418", "?error=no"):
        assert_german(text_of(operator, LIST + query))
    assert "ungeklärt" in text_of(operator, LIST)


@pytest.mark.parametrize("status", States)
@pytest.mark.parametrize("overdue", [False, True], ids=["", "overdue"])
def test_a_record_in_each_state(operator: Client, viewer: Client, status: Status, overdue: bool) -> None:
    now = timezone.now()
    times: dict[str, Any] = {"locked_until": now - timedelta(hours=1)} if overdue and status in States.LEASED else {}
    found = record(status, key=f"key-{status}", created_at=now - timedelta(hours=2), **times)
    for client in (operator, viewer):
        assert_german(text_of(client, page_of(found)))


def test_the_story_of_a_record(operator: Client, viewer: Client) -> None:
    began = timezone.now() - timedelta(hours=2)
    progress = Progress().mark_done("book", {"id": 1}, Moment(1400, 1)).mark_started("mail", Moment(9000, 2))
    found = record(
        Status.UNKNOWN,
        created_at=began,
        attempts=2,
        reconcile_attempts=3,
        run_name="rides.create",
        progress=progress.dump(),
    )
    for kind in Kind:
        details = {"attempt": 2, "seconds": 1.4, "try": 3, "of": 10, "wait": 90, "message": "lost", "trace": "ab12"}
        events.write(Ref("scope", found, "default"), kind, actor="alice", reason="body", details=details)
    for client in (operator, viewer):
        page = text_of(client, page_of(found))
        assert_german(page)
        assert "nach 1,4 s einer Lease von 5 min" in page
        assert "nächste Abfrage nach 1 min 30 s" in page


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_the_confirmation(operator: Client, action: Any) -> None:
    rows = [record(status, key=f"key-{status}", response_status=None) for status in (Status.UNKNOWN, Status.PENDING)]
    for chosen in ([rows[0]], rows):
        assert_german(text_of(operator, act(action.name, *chosen)))
    empty = operator.post(act(action.name, rows[0]), {}).content.decode()
    assert_german(empty)


def test_what_became_of_it(operator: Client) -> None:
    found = record(Status.DEAD_LETTER)
    page = operator.get(act("try-again", found)).content.decode()
    mark = dict(re.findall(r'name="(seen-[^"]*)" value="([^"]*)"', page))
    told = operator.post(act("try-again", found), {**mark, "reason": "The provider is back."}, follow=True)
    assert "„key“: Der Reconciler fragt bei seinem nächsten Lauf nach." in unescape(told.content.decode())
    told = operator.post(act("try-again", found), {**mark, "reason": "The provider is back."}, follow=True)
    assert "Jetzt möglich: „Reconciler jetzt fragen“" in unescape(told.content.decode())


def test_the_page_for_all_that_match(operator: Client) -> None:
    many(3, Status.DEAD_LETTER)
    address = reverse("admin:django_idempotency_act_on_all", args=["try-again"]) + "?status=dead_letter"
    assert_german(text_of(operator, address))
    told = operator.post(address, {"reason": "Back."}, follow=True).content.decode()
    assert "„Zurücksetzen und Abgleich wiederholen“ hat 3 Datensätze geändert." in unescape(told)


@pytest.mark.parametrize("count_outcomes", [False, True])
def test_the_dashboard(operator: Client, settings: Any, count_outcomes: bool) -> None:
    settings.IDEMPOTENCY = settings.IDEMPOTENCY | {"COUNT_OUTCOMES": count_outcomes}
    assert_german(text_of(operator, DASHBOARD))
    fill()
    for period in ("hour", "day", "week", "month"):
        clear_cache()
        page = text_of(operator, f"{DASHBOARD}?period={period}&live=1")
        assert_german(page)
    assert "Die neuesten 5.000 Schlüssel." in page
    assert re.search(r"\d,\d %", page)
    assert re.search(r"\d,\d (ms|s)\b", page)


@pytest.mark.parametrize("code", Code)
def test_a_finding(code: Code) -> None:
    seconds = dict.fromkeys(("age", "retention", "lease", "p99", "needed", "difference"), 1.5)
    names = ("error", "job", "operation", "options", "setting", "value", "field", "state", "engine", "promise")
    sizes = ("body", "least")
    for count in (1, 2):
        values = {**dict.fromkeys((*names, *sizes), "x"), "reason": "x", "secret": "x", **seconds, "count": count}
        assert_german(describe(Finding(code, values)))


def test_a_page_from_right_to_left_in_a_language_without_a_catalogue(operator: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE = "ar"
    found = record(Status.UNKNOWN)
    for address in (LIST, page_of(found), act("resolve-landed", found), DASHBOARD):
        page = operator.get(address).content.decode()
        assert 'dir="rtl"' in page
