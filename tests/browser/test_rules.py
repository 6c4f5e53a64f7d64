"""The rules page in a real browser, under a strict policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.browser.browsing import axe, launched, opened, playwright

pytestmark = pytest.mark.soak

see = playwright.expect
PAGE = "/idempotency/rules/"
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LOOKS = [{"viewport": size, "color_scheme": scheme} for size in (WIDE, NARROW) for scheme in ("light", "dark")]


@pytest.fixture
def address(live_server: LiveServer, settings: Any) -> str:
    settings.ALLOWED_HOSTS = ["*"]
    return live_server.url + PAGE


@pytest.fixture
def chromium(address: str) -> Iterator[Any]:
    yield from launched()


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look['viewport']['width']}-{look['color_scheme']}")
def test_everybody_can_read_it(chromium: Any, address: str, look: dict[str, Any]) -> None:
    page, complaints = opened(chromium, {"name": "no", "value": "body", "url": address}, address, **look)
    assert complaints == []  # before axe, which asks for style sheets in a way that the policy refuses
    assert page.evaluate("document.documentElement.scrollWidth") <= look["viewport"]["width"]
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px", "the style sheet is not there"
    assert [each["id"] for each in axe.Axe().run(page).response["violations"]] == []


def test_the_type_of_a_problem_opens_its_section(chromium: Any, address: str) -> None:
    target = f"{address}#idempotency_outcome_unknown"
    page, _ = opened(chromium, {"name": "no", "value": "body", "url": address}, target)
    see(page.locator(":target")).to_be_in_viewport()
    see(page.locator(":target")).to_contain_text("Outcome unknown")
