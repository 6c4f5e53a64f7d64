"""The five questions of a stranger: each is answered within two clicks, as the guide to the dashboard says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from django_idempotency.console.dashboard.numbers import clear_cache
from django_idempotency.models import IdempotencyKey
from testproject.history import fill
from testproject.stories import tell
from tests.browser.browsing import cookie_of, launched, playwright
from tests.kit.console import LIST

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.soak]

see = playwright.expect
MOST_CLICKS = 2
HOURS = timedelta(hours=2)
KEYS = {"paid": "story-paid-41d0", "unanswered": "story-unanswered-4f0a"}


class Stranger:
    """Somebody with a browser and a question, whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0

    def click(self, **named: Any) -> None:
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        self.page.get_by_role(**named).first.click()

    def find(self, text: str) -> None:
        """Begin at the list, paste, search, and open the only record."""
        self.page.goto(LIST)
        self.page.fill("#searchbar", text)
        self.click(role="button", name="Search")
        self.click(role="link", name=re.compile("^story-"))


@pytest.fixture
def customer(live_server: LiveServer, settings: Any) -> str:
    """A day of records, some of them with a past. The name of the principal of these."""
    settings.ALLOWED_HOSTS = ["*"]
    clear_cache()
    tell()
    fill()
    IdempotencyKey.objects.filter(key__startswith="story-unanswered").update(created_at=timezone.now() - HOURS)
    return str(IdempotencyKey.objects.get(key__startswith=KEYS["paid"]).principal)


@pytest.fixture
def stranger(live_server: LiveServer, customer: str) -> Iterator[Stranger]:
    """Opened after the last query of the test and closed before the database is tidied."""
    cookie = cookie_of(User.objects.create_superuser("stranger"), live_server.url)
    for chromium in launched():
        context = chromium.new_context(base_url=live_server.url)
        context.add_cookies([cookie])
        yield Stranger(context.new_page())
    clear_cache()


def what_happened_to_this_key(stranger: Stranger) -> None:
    stranger.find(KEYS["paid"])
    see(stranger.page.locator(".idem-timeline li").first).to_contain_text("Claimed")
    see(stranger.page.locator("h1 .idem-status")).to_have_text("completed")


def can_i_retry(stranger: Stranger) -> None:
    stranger.find(KEYS["unanswered"])
    see(stranger.page.locator(".idem-lead")).to_contain_text("Nothing will run until it is settled")


def what_is_stuck(stranger: Stranger) -> None:
    stranger.page.goto(f"{LIST}dashboard/")
    first = stranger.page.locator(".problems li a").first
    assert "needs" in first.get_attribute("href")
    stranger.click(role="link", name=first.inner_text())
    stranger.click(role="link", name=re.compile("^story-|[0-9a-f]{8}-"))
    see(stranger.page.locator(".idem-next")).to_contain_text("Next:")


def is_it_getting_worse(stranger: Stranger) -> None:
    stranger.page.goto(f"{LIST}dashboard/?period=hour")
    stranger.click(role="link", name="last 24 hours")
    created = stranger.page.locator("section[aria-labelledby=created]")
    see(created.locator("svg")).to_contain_text("unknown")
    see(created.locator("svg")).to_contain_text("peak")


@pytest.mark.parametrize("ask", [what_happened_to_this_key, can_i_retry, what_is_stuck, is_it_getting_worse])
def test_two_clicks_answer(stranger: Stranger, ask: Callable[[Stranger], None]) -> None:
    ask(stranger)


def test_two_clicks_say_whether_she_was_charged(stranger: Stranger, customer: str) -> None:
    stranger.page.goto(LIST)
    stranger.page.fill("#searchbar", customer)
    stranger.click(role="button", name="Search")
    stranger.click(role="link", name=re.compile("^story-paid"))
    see(stranger.page.locator(".idem-lead")).to_contain_text("every retry gets it until it expires")
    see(stranger.page.locator("#content")).to_contain_text('"charge": "ch_')
