"""The page of one record: what happened, what is shown to whom, and what it costs."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

import django_idempotency
from django_idempotency import Status
from django_idempotency.console import bodies, record, timeline
from django_idempotency.console.wording import STATES
from django_idempotency.core.audit import Kind
from django_idempotency.core.progress import Progress
from django_idempotency.core.refs import Ref
from django_idempotency.models import IdempotencyEvent
from django_idempotency.monitoring.units import format_duration, format_interval
from django_idempotency.store import events
from tests.kit import console as people
from tests.kit.console import client_of, many, page_of, person

pytestmark = pytest.mark.django_db

PLANTED = "planted-4242"


def text(client: Client, found: UUID) -> str:
    page = client.get(page_of(found))
    assert page.status_code == 200
    return page.content.decode()


def titles(client: Client, found: UUID) -> list[str]:
    return [str(entry.title) for entry in client.get(page_of(found)).context["timeline"]]


@pytest.mark.parametrize("status", Status)
def test_every_state_has_a_page_that_explains_it(viewer: Client, status: Status) -> None:
    page = text(viewer, people.record(status))
    assert str(STATES[status].meaning).replace("'", "&#x27;") in page
    assert str(STATES[status].label) in page


def test_what_happened_stands_in_its_order(viewer: Client) -> None:
    began = timezone.now() - timedelta(hours=2)
    progress = Progress().mark_done("book", {"id": 1}).mark_started("charge").dump()
    found = people.record(
        Status.UNKNOWN,
        created_at=began,
        last_run_at=began + timedelta(minutes=20),
        attempts=2,
        reconcile_attempts=3,
        run_name="rides.create",
        progress=progress,
    )
    ref = Ref("scope", found, "default")
    events.write(ref, Kind.LEASE_EXPIRED)
    events.write(ref, Kind.TAKEN_OVER, actor="resumer")
    events.write(ref, Kind.IN_DOUBT, reason="GatewayUnanswered")
    for minutes, event in enumerate(IdempotencyEvent.objects.order_by("id")):
        IdempotencyEvent.objects.filter(pk=event.pk).update(at=began + timedelta(minutes=10 + 15 * minutes))
    assert titles(viewer, found) == [
        "Claimed",
        "Step done: book",
        "Step begun, its outcome is not known: charge",
        "The lease expired: the attempt's outcome is not known",
        "Attempt 2 began",
        "Taken over and continued",
        "The attempt ended without a known outcome",
    ]
    page = text(viewer, found)
    assert "by resumer" in page
    assert "GatewayUnanswered" in page
    assert "3 reconciler checks without a verdict" in page


def test_an_earlier_life_of_the_key_is_marked(viewer: Client) -> None:
    found = people.record(Status.COMPLETED, created_at=timezone.now())
    IdempotencyEvent.objects.create(record_id=found, kind="in doubt", at=timezone.now() - timedelta(days=3))
    first, *_others = viewer.get(page_of(found)).context["timeline"]
    assert (first.is_earlier, str(first.title)) == (True, "The attempt ended without a known outcome")
    assert "before the key was claimed again" in text(viewer, found)


def test_a_kind_that_the_console_does_not_know_is_shown_as_it_is(viewer: Client) -> None:
    assert "from a later version" in titles(viewer, people.record(Status.COMPLETED, events=["from a later version"]))


def test_every_kind_has_its_words() -> None:
    assert set(timeline.KINDS) == set(Kind)


def with_content(status: Status = Status.COMPLETED, **columns: Any) -> UUID:
    headers = json.dumps([["Content-Type", "application/json"], ["Location", f"/{PLANTED}/header"]])
    body = json.dumps({"card": PLANTED, "html": "<b>bold</b>"}).encode()
    answer = {"response_headers": headers, "response_body": body} if status is Status.COMPLETED else {}
    work = {
        "run_name": "rides.create",
        "arguments": json.dumps({"secret": PLANTED}),
        "progress": Progress().mark_done("book", {"secret": PLANTED}).dump(),
    }
    return people.record(status, **{**work, **answer, **columns})


def test_contents_are_for_those_who_may_see_them(viewer: Client) -> None:
    found = with_content()
    reader = client_of(person("reader", "view_content"))
    assert PLANTED not in text(viewer, found)
    assert "only shown to users with the permission to view content" in text(viewer, found)
    page = text(reader, found)
    assert page.count(PLANTED) == 4  # body, a header, arguments, a result
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page


def test_contents_are_not_even_read_for_others(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    found = with_content()
    with django_assert_max_num_queries(8) as asked:
        viewer.get(page_of(found))
    assert not [each["sql"] for each in asked if PLANTED in each["sql"] or '"response_body",' in each["sql"]]


@pytest.mark.parametrize(
    ("body", "kind", "note", "shown"),
    [
        (None, "", "was not stored", ""),
        (b"", "text/plain", "The body is empty.", ""),
        (b'{"a":1}', "application/json", "application/json, 7 bytes", '{\n  "a": 1\n}'),
        (b"plain \xc3\xbc", "text/plain; charset=utf-8", "text/plain, 8 bytes", "plain ü"),
        (b"\x89PNG\x00", "image/png", "Binary: image/png, 5 bytes", ""),
        (b"a\x00b", "text/plain", "Binary: text/plain, 3 bytes", ""),
        (b"<script>alert(1)</script>", "text/html", "text/html, 25 bytes", "<script>alert(1)</script>"),
        (b"x" * (bodies.SHOWN + 1), "text/plain", "the first 64.0 KiB", "x" * bodies.SHOWN),
        (b"x" * bodies.SHOWN, "text/plain", "text/plain, 64.0 KiB", "x" * bodies.SHOWN),
    ],
    ids=["omitted", "empty", "json", "text", "binary", "nul", "html", "too long", "just not too long"],
)
def test_how_bytes_are_shown(body: bytes | None, kind: str, note: str, shown: str) -> None:
    seen = bodies.describe_bytes(body, kind)
    assert note in seen.note
    assert seen.text == shown


DEEP = "[" * 900 + ",".join(["1"] * 31_000) + "]" * 900  # 64 KB, and 56 MB with indentation
WIDE = json.dumps([{"amount": number} for number in range(3_000)])


def test_deeply_nested_json_makes_no_large_page(operator: Client) -> None:
    steps = json.dumps({"version": 1, "steps": [[f"step {each}", "done", json.loads(DEEP)] for each in range(20)]})
    found = with_content(response_body=DEEP.encode(), arguments=DEEP, progress=steps)
    page = text(operator, found)
    assert len(page) < 1_000_000
    assert page.count("[[[[1,1,1") == 2, "the body and the arguments are whole, without indentation"
    assert page.count("[[[[1, 1, 1") == 4, "and as many results as the page has room for"
    assert "step 19" in page, "the others with their size"


def test_ordinary_json_of_that_size_is_indented(operator: Client) -> None:
    assert text(operator, with_content(response_body=WIDE.encode())).count("    &quot;amount&quot;: ") == 3_000


def test_arguments_that_are_cut_say_so(operator: Client) -> None:
    page = text(operator, with_content(arguments=json.dumps(["x" * bodies.SHOWN])))
    assert "64.0 KiB; the first 64.0 KiB" in page


def test_a_page_of_the_client_is_never_markup(operator: Client) -> None:
    found = with_content(response_body=b"<script>alert(1)</script>", request_path="/<img>", last_error_code="<u>")
    page = text(operator, found)
    assert "<script>alert" not in page
    assert "<img>" not in page
    assert "<u>" not in page


def test_half_a_character_is_shown_as_one_that_cannot_be(operator: Client) -> None:
    """JSON can escape it; no page can hold it."""
    half = r'"half \ud83d"'
    found = people.record(
        Status.COMPLETED,
        response_body=half.encode(),
        response_headers=f'[["X-Half", {half}]]',
        run_name="rides.create",
        arguments=half,
        progress=f'{{"version": 1, "steps": [[{half}, "done", {half}]]}}',
    )
    assert text(operator, found).count("half \N{REPLACEMENT CHARACTER}") == 6, "the name of the step twice"


def test_a_page_without_time_zones(operator: Client, settings: Settings) -> None:
    found = people.record(Status.COMPLETED)
    settings.USE_TZ = False
    assert operator.get(page_of(found)).status_code == 200


def test_the_lease_bar_is_in_numbers_that_a_browser_reads(viewer: Client, settings: Settings) -> None:
    settings.USE_THOUSAND_SEPARATOR, settings.LANGUAGE_CODE = True, "de"
    found = people.record(
        Status.IN_PROGRESS, lease_seconds=3600, locked_until=timezone.now() + timedelta(seconds=1800.5)
    )
    bar = re.search(r'max="3600" high="3600" value="([^"]*)"', text(viewer, found))
    assert bar is not None
    assert 1799 <= int(bar[1]) < 1900


@pytest.mark.parametrize(("seconds", "over", "words"), [(299, False, " of 5 min left"), (-2, True, "expired 2 s ago")])
def test_the_lease_bar(viewer: Client, seconds: int, over: bool, words: str) -> None:
    found = people.record(Status.IN_PROGRESS, locked_until=timezone.now() + timedelta(seconds=seconds))
    bar = viewer.get(page_of(found)).context["bar"]
    assert (bar["over"], bar["whole"]) == (over, 300)
    assert words in bar["text"]
    assert 0 <= bar["used"] <= 300
    assert "<meter" in text(viewer, found)
    assert "style=" not in text(viewer, found)


def test_neighbours_are_of_the_same_principal_and_operation(viewer: Client) -> None:
    now = timezone.now()

    def at(minutes: int, **columns: Any) -> UUID:
        return people.record(
            Status.COMPLETED, key=f"at {minutes} {columns}", created_at=now + timedelta(minutes=minutes), **columns
        )

    ids = {minutes: at(minutes) for minutes in range(-6, 0)}
    at(-3, principal="user:8")
    at(-3, operation="rides.create")
    near = viewer.get(page_of(ids[-4])).context["neighbours"]
    assert [each.row.pk for each in near["before"]] == [ids[-6], ids[-5]]
    assert [each.row.pk for each in near["after"]] == [ids[-3], ids[-2], ids[-1]]


def test_neighbours_are_looked_for_nearby_only(viewer: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(record, "AROUND", 5)
    many(40, Status.COMPLETED, principal="user:8")
    middle, *_far = many(30, Status.UNKNOWN, principal="user:9", created_at=timezone.now() - timedelta(seconds=20.5))
    assert len(viewer.get(page_of(middle)).context["neighbours"]["before"]) == 3
    far = people.record(Status.COMPLETED, key="far", principal="user:9", created_at=timezone.now() + timedelta(1))
    assert viewer.get(page_of(far)).context["neighbours"] == {"before": [], "after": []}


@pytest.mark.parametrize("rights", [(), ("view_content",), people.RIGHTS])
@pytest.mark.parametrize("status", Status)
def test_a_page_costs_at_most_eight_queries(
    rights: tuple[str, ...], status: Status, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    found = people.record(status, events=["in doubt"] * 30)
    many(100, Status.COMPLETED)
    client = client_of(person("somebody", *rights))
    with django_assert_max_num_queries(8):
        assert client.get(page_of(found)).status_code == 200


@pytest.mark.parametrize("address", ["nonsense", str(UUID(int=1)), "a/b"])
def test_a_record_that_is_not_there(viewer: Client, address: str) -> None:
    page = viewer.get(people.LIST + address + "/change/", follow=True)
    assert page.status_code in (200, 404)
    assert page.redirect_chain or page.status_code == 404


def test_the_log_of_the_admin_is_there(viewer: Client) -> None:
    found = people.record(Status.COMPLETED)
    assert viewer.get(f"{people.LIST}{found}/history/").status_code == 200


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-2, "0 s"), (0, "0 s"), (0.0004, "0.4 ms"), (0.001, "1 ms"), (0.25, "250 ms"), (0.9999, "1 s"),
        (1, "1 s"), (1.54, "1.5 s"), (9.97, "10 s"), (59, "59 s"), (59.7, "1 min"), (60, "1 min"), (90, "1 min 30 s"),
        (3600, "1 h"), (3_725, "1 h 2 min"), (86_400, "1 d"), (86_460, "1 d"), (90_000, "1 d 1 h"), (864_000, "10 d"),
    ],
)  # fmt: skip
def test_durations(seconds: float, said: str) -> None:
    assert format_duration(seconds) == format_duration(timedelta(seconds=seconds)) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(-2, "0 s"), (0.4, "0 s"), (2.2, "2 s"), (59.7, "1 min"), (90, "1 min 30 s")]
)
def test_the_time_between_two_moments_is_in_whole_seconds(seconds: float, said: str) -> None:
    assert format_interval(seconds) == said


@pytest.mark.parametrize("sheet", ["console.css", "dashboard.css"])
def test_every_state_has_its_words_and_its_colour(sheet: str) -> None:
    text = (Path(django_idempotency.__file__).parent / "static" / "django_idempotency" / sheet).read_text()
    prefix = ".idem-tone-" if sheet == "console.css" else ".chart ."
    assert set(STATES) == set(Status)
    plain = {"quiet"} if sheet == "console.css" else set()  # the colour of a badge without a tone
    for tone in {state.tone for state in STATES.values()} - plain:
        assert re.search(rf"{re.escape(prefix + tone)}\b", text), tone
