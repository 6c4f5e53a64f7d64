"""What a person sees whose form is refused, in a real browser under a strict policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.template import engines
from django.urls import path

from django_idempotency.decorators import idempotent
from tests.browser.browsing import axe, cookie_of, is_complaint, is_strict, launched
from tests.browser.test_rules import LOOKS

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.urls(__name__),
    pytest.mark.soak,
]

FORM = """<!doctype html><title>Pay</title>{% load idempotency %}
<form method="post">
  <input type="hidden" name="csrfmiddlewaretoken" value="{{ token }}">{% idempotency_key %}<button>Pay</button>
</form>
"""
RUNS: list[str] = []


@idempotent(mode="leased")
def pay(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        RUNS.append("paid")
        raise RuntimeError("The provider's answer was lost.")
    return HttpResponse(engines["django"].from_string(FORM).render({"token": get_token(request)}))


urlpatterns = [path("pay", pay, name="pay")]


@pytest.fixture
def cookie(live_server: Any) -> dict[str, str]:
    """Of a person who is logged in. Beside the browser, this thread asks the database nothing."""
    RUNS.clear()
    return cookie_of(User.objects.create(username="alice"), live_server.url)


@pytest.fixture
def chromium(cookie: dict[str, str]) -> Iterator[Any]:
    yield from launched()


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look['viewport']['width']}-{look['color_scheme']}")
def test_a_retry_is_readable(chromium: Any, cookie: dict[str, str], live_server: Any, look: dict[str, Any]) -> None:
    context = chromium.new_context(base_url=live_server.url, **look)
    context.add_cookies([cookie])
    page = context.new_page()
    page.goto("/pay")
    page.locator("button").click()
    page.wait_for_load_state()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    told = page.reload()
    assert (told.status, is_strict(told.headers["content-security-policy"])) == (409, True)
    assert page.locator("h1").inner_text() == "Outcome unknown"
    assert page.locator("h2").inner_text() == "Try again"
    assert [each for each in complaints if "409" not in each] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= look["viewport"]["width"]
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px", "the style sheet is not there"
    assert [each["id"] for each in axe.Axe().run(page).response["violations"]] == []
    assert RUNS == ["paid"]
