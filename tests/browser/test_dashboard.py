"""The dashboard in a real browser, under a strict policy: no error, nothing refused, nothing that axe minds."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from pytest_django.live_server_helper import LiveServer

from django_idempotency.console.dashboard.numbers import PERIODS, clear_cache
from django_idempotency.console.dashboard.sections import OUTCOME_SERIES
from django_idempotency.console.wording import STATES
from django_idempotency.store import counts
from testproject.history import fill
from tests.browser.browsing import axe, cookie_of, launched, opened
from tests.kit.records import completed

pytestmark = pytest.mark.soak

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture
def address(live_server: LiveServer, settings: Any) -> Iterator[str]:
    settings.IDEMPOTENCY = {"COUNT_OUTCOMES": True}
    settings.ALLOWED_HOSTS = ["*"]
    clear_cache()
    yield live_server.url + reverse("admin:django_idempotency_dashboard")
    clear_cache()


@pytest.fixture
def cookie(address: str) -> dict[str, str]:
    return cookie_of(User.objects.create_superuser("root"), address.partition("/admin/")[0] + "/")


@pytest.fixture
def chromium(cookie: dict[str, str]) -> Iterator[Any]:
    """Opened after the last query of the test and closed before the database is tidied."""
    yield from launched()


@pytest.fixture
def history(address: str) -> None:
    assert fill() > 100
    for outcome in OUTCOME_SERIES:  # every label there is
        counts.accumulate(60, "op", outcome, 1234, "default")
    for name in ("shop.checkout.views.PaymentViewSet.create", "o" * 255):
        completed(name)


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_is_clean_and_can_be_read_by_everybody(
    chromium: Any, cookie: dict[str, str], address: str, scheme: str, size: dict[str, int]
) -> None:
    page, complaints = opened(chromium, cookie, address, color_scheme=scheme, viewport=size)
    assert page.locator("svg.chart").count() == 6
    found = axe.Axe().run(page, context="#content").response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert complaints == []


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_the_style_sheet_colours_the_pictures(chromium: Any, cookie: dict[str, str], address: str) -> None:
    seen = set()
    for scheme in ("light", "dark"):
        page, _ = opened(chromium, cookie, address, color_scheme=scheme)
        seen.add(page.evaluate("getComputedStyle(document.querySelector('.chart .worst')).fill"))
    assert len(seen) == 2
    assert "rgb(0, 0, 0)" not in seen


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_state_has_the_hue_that_it_has_in_the_list(
    chromium: Any, cookie: dict[str, str], address: str, scheme: str
) -> None:
    page, _ = opened(chromium, cookie, address, color_scheme=scheme)
    drawn = {status: hue(page.evaluate(DRAWN, state.tone)) for status, state in STATES.items()}
    records = address.removesuffix("dashboard/")
    page, _ = opened(chromium, {**cookie, "url": records}, records, color_scheme=scheme)
    listed = {status: hue(page.evaluate(LISTED, state.tone)) for status, state in STATES.items()}
    apart = {status: min(abs(drawn[status] - each), 360 - abs(drawn[status] - each)) for status, each in listed.items()}
    assert {status for status, degrees in apart.items() if degrees > 25} == set()


def hue(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return colorsys.rgb_to_hls(red, green, blue)[0] * 360


DRAWN = """
kind => {
  const [chart, bar] = ["svg", "rect"].map(name => document.createElementNS("http://www.w3.org/2000/svg", name));
  chart.classList.add("chart"); bar.classList.add(kind);
  document.querySelector(".idempotency-dashboard").append(chart); chart.append(bar);
  return getComputedStyle(bar).fill;
}
"""
LISTED = """
tone => {
  const badge = document.createElement("span");
  badge.classList.add("idem-status", "idem-tone-" + tone);
  document.querySelector("#content").append(badge);
  const style = getComputedStyle(badge);
  return tone === "worst" ? style.backgroundColor : style.color;
}
"""


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_no_words_of_a_picture_overlap(chromium: Any, cookie: dict[str, str], address: str) -> None:
    for period in PERIODS:
        for size in (WIDE, NARROW):
            page, _ = opened(chromium, cookie, f"{address}?period={period}", viewport=size)
            assert page.evaluate(OVERLAPPING) == [], period


OVERLAPPING = """
() => [...document.querySelectorAll("svg.chart")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([b, q]) =>
    p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 4 && q.top < p.bottom - 4
  ).map(([b]) => `${a} / ${b}`));
})
"""


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_the_other_period_and_the_tables_are_one_click_away(
    chromium: Any, cookie: dict[str, str], address: str
) -> None:
    page, complaints = opened(chromium, cookie, address)
    page.get_by_role("link", name="last 7 days").click()
    assert page.get_by_role("link", name="last 7 days").get_attribute("aria-current") == "true"
    table = page.locator("section[aria-labelledby=open] table")
    assert not table.is_visible()
    page.locator("section[aria-labelledby=open] summary").click()
    assert "dead letter" in table.inner_text()
    assert complaints == []


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_a_column_tells_its_number_by_touch_and_leads_to_its_records_by_a_second_one(
    chromium: Any, cookie: dict[str, str], address: str
) -> None:
    page, complaints = opened(chromium, cookie, address, viewport=NARROW, has_touch=True)
    column = page.locator("section[aria-labelledby=created] a .slot").last
    column.scroll_into_view_if_needed()
    column.tap()
    tip = page.locator(".idem-tip")
    assert re.fullmatch(r"\d\d:\d\d: \d+", tip.inner_text())
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    with page.expect_navigation():
        column.tap()
    number = int(column_number(page))
    assert number == page.locator("#result_list tbody tr").count()
    assert complaints == []


def column_number(page: Any) -> str:
    """The number of records that the list says it shows."""
    return str(re.search(r"(\d+) record", page.locator(".idem-pager").inner_text())[1])  # type: ignore[index]


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_a_long_name_moves_no_number_out_of_sight(chromium: Any, cookie: dict[str, str], address: str) -> None:
    page, _ = opened(chromium, cookie, address, viewport=WIDE)
    table = page.locator("section[aria-labelledby=work] .scroll")
    assert "o" * 255 in table.inner_text()
    assert table.evaluate("element => element.scrollWidth - element.clientWidth") <= 0


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_right_to_left_nothing_leaves_its_card(
    chromium: Any, cookie: dict[str, str], address: str, settings: Any, size: dict[str, int]
) -> None:
    settings.LANGUAGE_CODE = "ar"
    page, complaints = opened(chromium, cookie, address, viewport=size)
    assert page.evaluate("document.documentElement.dir") == "rtl"
    assert page.evaluate(OUTSIDE) == []
    assert complaints == []


OUTSIDE = """
() => [...document.querySelectorAll("svg.chart")].flatMap(svg => {
  const card = svg.closest(".card").getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const place = text.getBoundingClientRect();
    return place.width > 0 && (place.left < card.left || place.right > card.right);
  }).map(text => text.textContent);
})
"""


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_without_scripts_everything_can_be_reached(chromium: Any, cookie: dict[str, str], address: str) -> None:
    page, _ = opened(chromium, cookie, address, java_script_enabled=False)
    page.get_by_label("Operation", exact=True).select_option("transfers")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Refresh every 30 s").click()
    page.get_by_role("link", name="Pause the refresh").click()
    assert "operation=transfers" in page.url
    page.locator("section[aria-labelledby=work] td a").first.click()
    page.wait_for_selector("#result_list tbody tr")


@pytest.mark.usefixtures("history")
@pytest.mark.django_db(transaction=True)
def test_print_leaves_out_what_cannot_be_pressed(chromium: Any, cookie: dict[str, str], address: str) -> None:
    page, _ = opened(chromium, cookie, address)
    page.emulate_media(media="print")
    for name in ("#header", "#nav-sidebar", ".breadcrumbs", ".choose", ".fresh a"):
        assert not page.locator(name).first.is_visible()
    assert page.locator("svg.chart").first.is_visible()
