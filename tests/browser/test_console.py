"""The console in a real browser, under a strict policy: looking, finding, acting, losing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from django_idempotency import Status
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, reconciler
from testproject.stories import tell
from tests.browser.browsing import axe, cookie_of, launched, opened, playwright
from tests.kit.console import LIST, RIGHTS, act, page_of, person, record
from tests.kit.records import CREATED
from tests.kit.threads import actors

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.soak]

see = playwright.expect
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
TABLET, PAPER = {"width": 1024, "height": 768}, {"width": 720, "height": 1000}
PAST = timedelta(hours=-1)
OPERATION = "tests.browser"
# What is pressed, and what the record's page says afterwards.
PRESSED = {
    "ask-reconciler": "completed",
    "resolve-landed": "completed",
    "resolve-not-executed": "failed, can be retried",
    "try-again": "unknown",
    "enqueue": "pending",
    "expire-now": "expired, kept for audit",
}
BEGUN = {
    "ask-reconciler": Status.UNKNOWN,
    "resolve-landed": Status.DEAD_LETTER,
    "resolve-not-executed": Status.UNKNOWN,
    "try-again": Status.DEAD_LETTER,
    "enqueue": Status.PENDING,
    "expire-now": Status.COMPLETED,
}


@dataclass(frozen=True)
class Scene:
    """Everything that is made before the browser starts: beside it, this thread asks the database nothing."""

    url: str
    cookies: dict[str, dict[str, str]]
    ids: dict[str, UUID]


@pytest.fixture
def scene(live_server: LiveServer, settings: Any, registrations: None) -> Scene:
    settings.ALLOWED_HOSTS = ["*"]
    reconciler(OPERATION)(lambda _row: Landed(CREATED))
    tell()
    now = timezone.now()
    ids = {}
    for name, status in BEGUN.items():
        columns: dict[str, Any] = {"operation": OPERATION, "grace_until": now + PAST, "created_at": now}
        if status is Status.PENDING:
            columns["locked_until"] = now + PAST
        ids[name] = record(status, key=f"to {name}", **columns)
    long = {"operation": "o" * 255, "principal": "p" * 255, "request_path": "/" + "r" * 254}
    ids["long"] = record(Status.UNKNOWN, key="k" * 255, events=["in doubt"], **long)
    people = {"operator": person("operator", *RIGHTS), "viewer": person("viewer")}
    return Scene(live_server.url, {name: cookie_of(user, live_server.url) for name, user in people.items()}, ids)


@pytest.fixture
def chromium(scene: Scene) -> Iterator[Any]:
    """Opened after the last query of the test and closed before the database is tidied."""
    yield from launched()


Open = Callable[..., tuple[Any, list[str]]]


@pytest.fixture
def visit(scene: Scene, chromium: Any) -> Open:
    def go(path: str, who: str = "operator", **options: Any) -> tuple[Any, list[str]]:
        return opened(chromium, scene.cookies[who], scene.url + path, **options)

    return go


def elsewhere(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """In a thread with a connection of its own, where no event loop runs."""
    with actors(1) as (other,):
        return other.do(call, *arguments, **named)


def test_everybody_can_read_every_page(visit: Open, scene: Scene) -> None:
    story = elsewhere(lambda: IdempotencyKey.objects.get(key__startswith="story-ride").pk)
    paths = [LIST, page_of(story), page_of(scene.ids["expire-now"]), act("resolve-landed", scene.ids["try-again"])]
    for path in paths:
        for options in ({"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": NARROW}):
            page, complaints = visit(path, **options)
            assert complaints == []  # before axe, which asks for style sheets in a way that the policy refuses
            found = axe.Axe().run(page, context="#content").response["violations"]
            serious = [each for each in found if each["impact"] in ("serious", "critical")]
            assert [(path, options, each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []


def test_list_filter_search_and_record(visit: Open) -> None:
    page, complaints = visit(LIST, viewport=WIDE)
    see(page.locator("#result_list tbody tr")).to_have_count(16)
    page.get_by_role("link", name="operator (dead letter)").click()
    see(page.locator("#result_list .idem-status")).to_have_text(["dead letter"] * 3)
    page.get_by_role("link", name="Clear all filters").click()
    page.fill("#searchbar", "to expire-now")
    page.get_by_role("button", name="Search").click()
    see(page.locator("#result_list tbody tr")).to_have_count(1)
    page.get_by_role("link", name="to expire-now").click()
    see(page.locator("h2", has_text="What happened")).to_be_visible()
    see(page.locator(".idem-timeline li")).to_have_count(3)
    assert complaints == []


@pytest.mark.parametrize("name", PRESSED)
def test_every_action_from_the_record(visit: Open, scene: Scene, name: str) -> None:
    page, complaints = visit(page_of(scene.ids[name]))
    page.locator(f".idem-lead a[href*='/act/{name}/']").click()
    confirm(page)
    see(page.locator(".messagelist .success")).to_be_visible()
    see(page.locator("h1 .idem-status")).to_have_text(PRESSED[name])
    see(page.locator(".idem-timeline")).to_contain_text("asked the bank")
    assert complaints == []


def confirm(page: Any) -> None:
    see(page.locator(".idem-risk")).to_be_visible()
    page.fill("[name=reason]", "asked the bank")
    if page.locator("[name=body]").count():
        page.fill("[name=status]", "201")
        page.fill("[name=headers]", "")
        page.fill("[name=body]", '{"id": 7}')
        page.locator(".submit-row [type=submit]").click()
        see(page.locator(".idem-preview")).to_contain_text("201 Created")
    page.locator(".submit-row [type=submit]").first.click()


def test_an_action_from_the_list_with_the_keyboard_alone(visit: Open, scene: Scene) -> None:
    page, complaints = visit(LIST)
    page.locator(f"input[name=_selected_action][value='{scene.ids['try-again']}']").focus()
    page.keyboard.press("Space")
    page.locator("select[name=action]").focus()
    page.locator("select[name=action]").select_option("try-again")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    see(page.locator(".idem-risk")).to_be_visible()
    page.locator("[name=reason]").focus()
    page.keyboard.type("asked the bank")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    see(page.locator("h1 .idem-status")).to_have_text("unknown")
    assert complaints == []


@pytest.mark.parametrize("name", PRESSED)
def test_who_may_only_look_sees_no_button_and_is_refused(visit: Open, scene: Scene, name: str) -> None:
    page, complaints = visit(page_of(scene.ids[name]), "viewer")
    assert page.locator(".idem-lead a[href*='/act/']").count() == 0
    assert page.locator(".idem-content").count() == 0
    assert complaints == []
    assert page.goto(scene.url + act(name, scene.ids[name])).status == 403
    page.goto(scene.url + LIST)
    assert page.locator("select[name=action]").count() == 0


def test_somebody_was_quicker(visit: Open, scene: Scene) -> None:
    found = scene.ids["try-again"]
    page, complaints = visit(act("try-again", found))
    moved = {"status": "unknown", "reconcile_after": timezone.now()}
    elsewhere(lambda: IdempotencyKey.objects.filter(pk=found).update(**moved))
    confirm(page)
    see(page.locator(".messagelist .warning")).to_contain_text("This record changed to")
    see(page.locator("h1 .idem-status")).to_have_text("unknown")
    assert complaints == []


def test_a_key_is_copied_with_one_press(visit: Open, scene: Scene) -> None:
    page, complaints = visit(page_of(scene.ids["expire-now"]), permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy the key")
    button.click()
    page.wait_for_selector(".idem-copied")
    assert page.evaluate("navigator.clipboard.readText()") == "to expire-now"
    assert complaints == []


def test_each_state_has_a_colour_of_its_own_in_light_and_in_dark(visit: Open) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        page, _ = visit(LIST, color_scheme=scheme)
        seen[scheme] = {
            word: page.evaluate("element => getComputedStyle(element).backgroundColor", mark.element_handle())
            for mark in page.locator("#result_list .idem-status").all()
            for word in [mark.inner_text()]
        }
    assert all(seen["light"][word] != seen["dark"][word] for word in seen["light"])
    colours = {word: colour for word, colour in seen["light"].items() if word not in ("pending",)}
    assert len(set(colours.values())) == len(colours)
    assert not [colour for colour in colours.values() if re.match(r"rgba\(0, 0, 0, 0\)", colour)]


@pytest.mark.parametrize("size", [NARROW, TABLET], ids=["narrow", "tablet"])
def test_on_a_narrow_screen_what_comes_next_is_seen_without_scrolling_sideways(
    visit: Open, size: dict[str, int]
) -> None:
    page, complaints = visit(LIST, viewport=size)
    results = page.locator(".results").bounding_box()
    for cell in (".field-shown_status", ".field-shown_key a", ".field-waits", ".field-work"):
        box = page.locator(f"#result_list {cell}").first.bounding_box()
        assert box is not None
        assert box["x"] >= results["x"]
        assert box["x"] + box["width"] <= results["x"] + results["width"], cell
    page.locator("#action-toggle").check()
    see(page.locator("#result_list tr.selected")).to_have_count(16)
    assert complaints == []


def test_beside_the_sidebar_and_the_filters_every_column_is_seen(visit: Open) -> None:
    page, _ = visit(LIST, viewport={"width": 1280, "height": 800})
    sidebar = page.locator("#nav-sidebar")
    if "shifted" not in page.locator("#main").get_attribute("class"):
        page.click("#toggle-nav-sidebar")
    see(sidebar).to_be_visible()
    results = page.locator(".results")
    assert results.evaluate("element => element.scrollWidth - element.clientWidth") <= 0


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_longest_names_widen_no_page(visit: Open, scene: Scene, size: dict[str, int]) -> None:
    for path in (LIST, page_of(scene.ids["long"]), act("resolve-landed", scene.ids["long"])):
        page, _ = visit(path, viewport=size)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
        assert page.evaluate(BESIDE_ITS_BOX) == [], path
    page, _ = visit(LIST, viewport=WIDE)
    see(page.locator("#result_list .field-shown_attempts").first).to_be_in_viewport()


BESIDE_ITS_BOX = """
() => [...document.querySelectorAll("#content .module, #content .idem-lead")].filter(
  box => box.id !== "changelist" && box.scrollWidth > box.clientWidth + 1
).map(box => box.className)
"""


def test_a_button_is_not_underlined_and_a_form_has_room(visit: Open, scene: Scene) -> None:
    page, _ = visit(page_of(scene.ids["resolve-landed"]), viewport=WIDE)
    for button in page.locator(".idem-lead .button").all():
        assert button.evaluate("element => getComputedStyle(element).textDecorationLine") == "none"
    page, _ = visit(act("resolve-landed", scene.ids["resolve-landed"]), viewport=WIDE)
    box = page.locator("[name=body]").bounding_box()
    assert box["width"] > 600
    assert box["height"] < 300


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_print_has_what_is_known_in_black_and_nothing_to_press(visit: Open, scene: Scene, theme: str) -> None:
    pressed = "#header, #nav-sidebar, .breadcrumbs, #changelist-filter, .actions, .button, .idem-copy, .submit-row"
    for path in (LIST, page_of(scene.ids["try-again"]), act("try-again", scene.ids["try-again"])):
        page, _ = visit(path, viewport=PAPER)
        page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        page.reload()
        page.emulate_media(media="print")
        assert [each for each in page.locator(pressed).all() if each.is_visible()] == []
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        box = page.locator("#content-main").bounding_box()
        assert box["width"] > PAPER["width"] * 0.9
    page, _ = visit(LIST, viewport=PAPER)
    page.emulate_media(media="print")
    results = page.locator(".results")
    assert results.evaluate("element => element.scrollWidth - element.clientWidth") <= 0


def test_in_forced_colours_the_story_keeps_its_dots(visit: Open, scene: Scene) -> None:
    page, _ = visit(page_of(scene.ids["expire-now"]), forced_colors="active")
    style = "element => getComputedStyle(element, '::before').backgroundColor"
    dot = page.locator(".idem-timeline li").first.evaluate(style)
    assert dot != page.evaluate("getComputedStyle(document.body).backgroundColor")
