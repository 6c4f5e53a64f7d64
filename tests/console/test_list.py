"""The list: what it shows, what is found, how it goes on, and what it costs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from datetime import timezone as datetime_zone
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from django_idempotency import Status
from django_idempotency.console import keyset
from django_idempotency.models import IdempotencyKey
from tests.kit.console import LIST, client_of, many, page_of, record
from tests.management.terminals import said

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

MOST_QUERIES = 8


def keys(response: Any) -> list[str]:
    assert response.status_code == 200
    return [row.key for row in response.context["cl"].result_list]


def further(response: Any) -> str:
    link = response.context["cl"].further_link
    assert link is not None
    return LIST + str(link)


def test_each_state_is_a_word(viewer: Client) -> None:
    for status in Status:
        record(status, key=f"a-{status}")
    page = viewer.get(LIST).content.decode()
    for word in (
        "pending",
        "in progress",
        "completed",
        "failed, can be retried",
        "unknown",
        "dead letter",
        "expired, kept for audit",
    ):
        assert f">{word}</span>" in page


def test_the_newest_come_first_and_the_pages_lose_nothing(viewer: Client) -> None:
    many(keyset.PAGE * 2 + 7, Status.COMPLETED)
    seen, address = [], LIST
    for size in (keyset.PAGE, keyset.PAGE, 7):
        page = viewer.get(address)
        assert len(keys(page)) == size
        seen += keys(page)
        address = further(page) if size == keyset.PAGE else ""
    assert page.context["cl"].further_link is None
    assert seen == [f"completed-{number}" for number in range(keyset.PAGE * 2 + 7)]


def test_the_pages_lose_nothing_without_time_zones(viewer: Client, settings: Settings) -> None:
    many(keyset.PAGE + 7, Status.COMPLETED)
    settings.USE_TZ = False
    first = viewer.get(LIST)
    second = viewer.get(further(first))
    assert keys(first) + keys(second) == [f"completed-{number}" for number in range(keyset.PAGE + 7)]


def test_rows_of_one_instant_are_shown_once_each(viewer: Client) -> None:
    many(keyset.PAGE + 20, Status.COMPLETED, created_at=timezone.now())
    first = viewer.get(LIST)
    second = viewer.get(further(first))
    assert len({*keys(first), *keys(second)}) == keyset.PAGE + 20
    assert len(keys(second)) == 20


@pytest.mark.parametrize("fraction", ["", ".120", ".120000", ".123456"])
def test_a_page_goes_on_however_the_time_was_written(viewer: Client, vendor: str, fraction: str) -> None:
    """SQLite keeps a time as the text that a statement wrote."""
    many(keyset.PAGE + 2, Status.COMPLETED)
    if vendor == "sqlite":
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("UPDATE idempotency_key SET created_at = SUBSTR(created_at, 1, 19) || %s", [fraction])
    first = viewer.get(LIST)
    assert len({*keys(first), *keys(viewer.get(further(first)))}) == keyset.PAGE + 2


def test_a_filter_looks_at_a_bounded_number_of_rows_and_says_so(viewer: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(keyset.fetch_page, "__defaults__", (30,))
    many(100, Status.COMPLETED)
    IdempotencyKey.objects.filter(key="completed-75").update(operation="rides.create")
    address, looks = LIST + "?operation=rides.create", 0
    while not keys(page := viewer.get(address)):
        assert page.context["cl"].page.looked_to is not None
        assert b"Search older records" in page.content
        address, looks = further(page), looks + 1
    assert (keys(page), looks) == (["completed-75"], 2)


@pytest.mark.parametrize("status", Status)
def test_filter_by_status(viewer: Client, status: Status) -> None:
    for each in Status:
        record(each, key=f"a-{each}")
    assert keys(viewer.get(f"{LIST}?status={status}")) == [f"a-{status}"]


def test_what_waits_comes_in_the_order_in_which_it_is_due(viewer: Client) -> None:
    now = timezone.now()
    for minutes in (5, -9, -2):
        moved = now + timedelta(minutes=minutes)
        record(Status.UNKNOWN, key=f"doubt {minutes}", reconcile_after=moved)
        record(Status.IN_PROGRESS, key=f"lease {minutes}", locked_until=moved)
    record(Status.DEAD_LETTER, key="dead")
    record(Status.COMPLETED, key="done")
    assert keys(viewer.get(f"{LIST}?status=unknown")) == ["doubt -9", "doubt -2", "doubt 5"]
    assert keys(viewer.get(f"{LIST}?needs=reconciler")) == ["doubt -9", "doubt -2"]
    assert keys(viewer.get(f"{LIST}?needs=sweeper")) == ["lease -9", "lease -2"]
    assert keys(viewer.get(f"{LIST}?needs=person")) == ["dead"]


@pytest.mark.parametrize(
    ("status", "column", "words"),
    [
        (Status.IN_PROGRESS, "locked_until", "lease expired 3 min ago"),
        (Status.PENDING, "locked_until", "pick-up overdue by 3 min"),
        (Status.UNKNOWN, "reconcile_after", "reconciler check overdue by 3 min"),
        (Status.EXPIRED, "expires_at", "deletion overdue by 3 min"),
        (Status.COMPLETED, "expires_at", "expired 3 min ago"),
    ],
)
def test_what_is_late_says_for_how_long(viewer: Client, status: Status, column: str, words: str) -> None:
    columns: dict[str, Any] = {column: timezone.now() - timedelta(minutes=3, seconds=5)}
    record(status, **columns)
    assert words in viewer.get(LIST).content.decode()


def test_pages_along_another_index_go_on_as_well(viewer: Client) -> None:
    for number in range(keyset.PAGE + 5):
        record(Status.UNKNOWN, key=f"doubt {number}", reconcile_after=timezone.now() - timedelta(minutes=number // 3))
    first = viewer.get(f"{LIST}?status=unknown")
    second = viewer.get(further(first))
    assert len({*keys(first), *keys(second)}) == keyset.PAGE + 5
    assert second.context["cl"].further_link is None


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ("hour", ["new"]),
        ("day", ["new", "hours"]),
        ("week", ["new", "hours", "days"]),
        ("month", ["new", "hours", "days", "weeks"]),
        ("earlier", ["months"]),
    ],
)
def test_filter_by_creation(viewer: Client, choice: str, found: list[str]) -> None:
    ages = {
        "new": timedelta(minutes=59),
        "hours": timedelta(hours=23),
        "days": timedelta(6),
        "weeks": timedelta(8),
        "months": timedelta(31),
    }
    for name, age in ages.items():
        record(Status.COMPLETED, key=name, created_at=timezone.now() - age)
    assert keys(viewer.get(f"{LIST}?created={choice}")) == found


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"created_from": "2026-03-01T12:00"}, ["13", "12"]),
        ({"created_to": "2026-03-01T12:00"}, ["11"]),
        ({"created_from": "2026-03-01T11:30:00", "created_to": "2026-03-01T12:30:00"}, ["12"]),
        ({"created_from": "2026-03-01T13:30:00+01:00", "created_to": ""}, ["13"]),
        ({"created_from": "2026-03-01T13:30:00 01:00"}, ["13"]),  # a plus sign that was not quoted
        ({"created_from": "yesterday"}, []),
        ({"created_from": "0001-01-01T00:00+14:00"}, []),
        ({"created_from": "", "created_to": ""}, ["13", "12", "11"]),
        ({"created_from": "2026-03-01T12:30", "created": "hour"}, ["13"]),
    ],
)
@pytest.mark.parametrize("uses_zones", [True, False])
def test_filter_by_a_range_of_creation(
    viewer: Client, settings: Any, query: dict[str, str], found: list[str], uses_zones: bool
) -> None:
    for hour in (11, 12, 13):
        record(Status.COMPLETED, key=str(hour), created_at=NOON.replace(hour=hour))
    settings.USE_TZ = uses_zones
    assert keys(viewer.get(LIST, query)) == found


def test_a_range_is_on_the_readers_clock(viewer: Client) -> None:
    record(Status.COMPLETED, key="noon in UTC", created_at=NOON)
    with timezone.override(datetime_zone(timedelta(hours=5))):
        assert keys(viewer.get(LIST, {"created_from": "2026-03-01T16:30"})) == ["noon in UTC"]
        assert keys(viewer.get(LIST, {"created_from": "2026-03-01T17:30"})) == []
        page = viewer.get(LIST, {"created_from": "2026-03-01T11:30:00+00:00"}).content.decode()
    assert 'name="created_from" id="filter-from" value="2026-03-01T16:30:00"' in page


def test_choosing_a_length_of_time_removes_the_range_and_the_form_keeps_the_other_filters(viewer: Client) -> None:
    record(Status.COMPLETED)
    page = viewer.get(LIST, {"created_from": "2026-03-01T12:00", "status": "completed", "p": "x"})
    (spec,) = [each for each in page.context["cl"].filter_specs if each.parameter_name == "created"]
    for choice in spec.choices(page.context["cl"]):
        assert "created_from" not in choice["query_string"]
        assert "status=completed" in choice["query_string"]
    assert '<input type="hidden" name="status" value="completed">' in page.content.decode()
    assert '<input type="hidden" name="p"' not in page.content.decode()


@pytest.mark.parametrize(("value", "found"), [("timeout", ["timeout"]), ("time", []), ("x" * 200, []), ("-", ["none"])])
def test_filter_by_error(viewer: Client, value: str, found: list[str]) -> None:
    record(Status.UNKNOWN, key="timeout", last_error_code="timeout")
    record(Status.UNKNOWN, key="other", last_error_code="refused")
    record(Status.UNKNOWN, key="none", last_error_code="")
    assert keys(viewer.get(LIST, {"error": value})) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2xx", ["201"]),
        ("4xx", ["404", "402"]),
        ("402", ["402"]),
        ("403", []),
        ("6xx", []),
        ("٤٠٢", ["402"]),
        ("4022", []),
    ],
)
def test_filter_by_response_status(viewer: Client, value: str, found: list[str]) -> None:
    for code in (201, 402, 404):
        created = NOON + timedelta(seconds=code)
        record(Status.COMPLETED, key=str(code), response_status=code, created_at=created)
    record(Status.UNKNOWN, key="none")
    assert keys(viewer.get(LIST, {"http": value})) == found


def test_filter_by_failure(viewer: Client) -> None:
    for status in Status:
        record(status, key=f"a-{status}")
    record(Status.COMPLETED, key="503", response_status=503)
    found = set(keys(viewer.get(f"{LIST}?status=failure")))
    assert found == {"a-unknown", "a-dead_letter", "a-failed", "a-failed_retryable", "503"}


@pytest.mark.parametrize(
    ("choice", "found"), [("past", ["past"]), ("hour", ["soon"]), ("day", ["soon", "hours"]), ("later", ["days"])]
)
def test_filter_by_expiry(viewer: Client, choice: str, found: list[str]) -> None:
    times = {
        "past": timedelta(minutes=-1),
        "soon": timedelta(minutes=59),
        "hours": timedelta(hours=23),
        "days": timedelta(2),
    }
    for name, ahead in times.items():
        record(Status.COMPLETED, key=name, expires_at=timezone.now() + ahead)
    assert keys(viewer.get(f"{LIST}?expires={choice}")) == found


def test_filters_go_together(viewer: Client) -> None:
    for operation in ("payments.create", "rides.create"):
        for status in (Status.UNKNOWN, Status.COMPLETED):
            record(status, key=f"{operation} {status}", operation=operation)
    assert keys(viewer.get(f"{LIST}?status=unknown&operation=rides.create&created=day")) == ["rides.create unknown"]


def test_operations_come_from_the_code(viewer: Client) -> None:
    record(Status.COMPLETED, operation="a.forgotten.name")
    page = viewer.get(LIST)
    (spec,) = [each for each in page.context["cl"].filter_specs if each.parameter_name == "operation"]
    names = {value for value, _label in spec.lookup_choices}
    assert {"payments.create", "rides.create", "charges.create"} <= names
    assert "a.forgotten.name" not in names
    assert keys(viewer.get(f"{LIST}?operation=a.forgotten.name")) == ["key"]


def test_a_search_finds_what_it_names_and_no_near_miss(viewer: Client) -> None:
    found = record(Status.COMPLETED, key="the one", principal="user:9")
    record(Status.COMPLETED, key="the one and only", principal="user:99")
    derived = IdempotencyKey.objects.get(id=found).derive("charge")
    named_and_near = {
        "a key": ("the one", ["he one", "the two", "a" * 400]),
        "a key in quotes": ('"the one"', ['"the two"']),
        "an id": (str(found), ["00000000-0000-5000-8000-000000000000"]),
        "a downstream key": (derived, [f"{found}-0123456789ab-charge", "no uuid-charge"]),
        "a principal": ("user:9", ["user:", "ser:9"]),
    }
    for what, (term, near) in named_and_near.items():
        assert keys(viewer.get(LIST, {"q": term})) == ["the one"], what
        for other in near:
            assert keys(viewer.get(LIST, {"q": other})) == [], f"{other!r} is not {what}"


def test_the_beginning_of_a_key_is_enough(viewer: Client) -> None:
    for key in ("order-7-a", "order-7-b", "order-8", "ORDER-7", "border-7"):
        record(Status.COMPLETED, key=key)
    assert sorted(keys(viewer.get(LIST, {"q": "order-7"}))) == ["order-7-a", "order-7-b"]
    assert sorted(keys(viewer.get(LIST, {"q": '"order-'}))) == ["order-7-a", "order-7-b", "order-8"]
    assert keys(viewer.get(LIST, {"q": "order-8"})) == ["order-8"], "a complete key is meant alone"
    assert keys(viewer.get(LIST, {"q": "ord"})) == [], "too short to be the beginning of few"


def test_a_username_finds_the_records_of_its_user(viewer: Client) -> None:
    carol = User.objects.create_user("carol")
    record(Status.COMPLETED, key="hers", principal=f"user:{carol.pk}")
    record(Status.COMPLETED, key="another's", principal="user:999")
    assert keys(viewer.get(LIST, {"q": "carol"})) == ["hers"]
    assert keys(viewer.get(LIST, {"q": "nobody"})) == []


@pytest.mark.parametrize("column", ["principal", "operation", "tenant"])
def test_each_spelling_is_another_name(viewer: Client, column: str) -> None:
    """The default collations of MariaDB and MySQL take all of these for one."""
    spellings = ["josé", "jose", "JOSE", "jose\u0301"]
    for number, name in enumerate(spellings):
        record(Status.COMPLETED, key=f"key {number}", **{column: name})
    for number, name in enumerate(spellings):
        listed = json.loads(said("idempotency_list", f"--{column}", name, "--json"))["records"]
        found = {
            "filter": [row.key for row in IdempotencyKey.objects.filter(**{column: name})],
            "command": [each["key"] for each in listed],
        }
        if column != "tenant":
            query = {"q" if column == "principal" else column: name}
            found["admin"] = keys(viewer.get(LIST, query))
        assert found == {how: [f"key {number}"] for how in found}, name


def test_the_page_says_how_much_of_the_list_it_is(viewer: Client) -> None:
    many(keyset.PAGE + 3, Status.COMPLETED)
    first = viewer.get(LIST)
    assert first.context["cl"].summary == "First 50 records, newest first."
    assert viewer.get(further(first)).context["cl"].summary == "3 more records, newest first."
    assert viewer.get(LIST, {"q": "completed-52"}).context["cl"].summary == "1 record, newest first."


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "No key has been used yet."),
        ("status=unknown", "No record matches these filters."),
        ("q=nothing-here", "Nothing matched “nothing-here”."),
    ],
)
def test_an_empty_list_says_what_to_do_and_offers_no_action(operator: Client, query: str, words: str) -> None:
    if query:
        record(Status.COMPLETED)
    page = operator.get(f"{LIST}?{query}").content.decode()
    assert words in page
    assert "0 records" not in page
    assert 'name="action"' not in page
    assert ("First steps" in page) is (query == "")


def test_an_old_key_is_found_however_many_came_after_it(viewer: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(keyset.fetch_page, "__defaults__", (3,))
    many(20, Status.COMPLETED)
    assert keys(viewer.get(LIST, {"q": "completed-19"})) == ["completed-19"]
    assert keys(viewer.get(LIST, {"q": "completed-19", "status": "completed"})) == ["completed-19"]


@pytest.mark.parametrize("query", ["key__startswith=a", "response_body=x", "principal=user:7", "nothing=1", "o=1"])
def test_no_other_question_reaches_the_table(viewer: Client, query: str) -> None:
    record(Status.COMPLETED)
    assert viewer.get(f"{LIST}?{query}").status_code in (302, 400) or query == "o=1"


BEYOND = [
    f"{time}~{row}" for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00") for row in ("", "0" * 32)
]


@pytest.mark.parametrize(
    "cursor", ["nonsense", "2", "2026-01-01~", "2026-01-01T00:00:00+00:00~zz", "~", "9" * 50, *BEYOND]
)
def test_a_cursor_that_is_none_is_the_first_page(viewer: Client, cursor: str) -> None:
    record(Status.COMPLETED)
    assert keys(viewer.get(LIST, {"p": cursor})) == ["key"]


QUESTIONS = [
    "",
    "status=completed",
    "status=in_progress",
    "status=unknown",
    "status=dead_letter",
    "needs=person",
    "needs=unattended",
    "needs=sweeper",
    "needs=reconciler",
    "operation=payments.create",
    "created=day",
    "created=earlier",
    "created_from=2026-01-01T00:00&created_to=2126-01-01T00:00",
    "status=failure",
    "error=timeout",
    "http=5xx",
    "expires=past",
    "expires=day",
    "q=completed-7",
    "q=user:7",
    "q=nobody",
    "status=completed&operation=payments.create&created=day&expires=day",
]


@pytest.mark.parametrize("query", QUESTIONS)
def test_every_page_is_cheap(viewer: Client, query: str, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    many(700, Status.COMPLETED)
    many(100, Status.IN_PROGRESS)
    many(100, Status.UNKNOWN)
    many(100, Status.DEAD_LETTER)
    with django_assert_max_num_queries(MOST_QUERIES) as asked:
        assert viewer.get(f"{LIST}?{query}").status_code == 200
    assert not [each["sql"] for each in asked if re.search(r"COUNT\(|DISTINCT|response_body", each["sql"])]


def test_nothing_can_be_added_changed_or_deleted(viewer: Client, admin_client: Client) -> None:
    found = record(Status.COMPLETED)
    for client in (viewer, admin_client):
        assert client.get(LIST + "add/").status_code == 403
        assert client.post(LIST + "add/", {"key": "new"}).status_code == 403
        assert client.get(f"{LIST}{found}/delete/").status_code == 403
        assert client.post(f"{LIST}{found}/delete/", {"post": "yes"}).status_code == 403
        assert client.post(page_of(found), {"status": "failed"}).status_code == 403
        client.post(LIST, {"action": "delete_selected", "_selected_action": [str(found)], "index": "0"})
        client.post(LIST, {"action": "delete_selected", "_selected_action": [str(found)], "post": "yes"})
    assert IdempotencyKey.objects.get().status == "completed"


def test_the_menu_holds_what_the_person_may_do(viewer: Client, operator: Client, admin_client: Client) -> None:
    record(Status.COMPLETED)
    assert viewer.get(LIST).context["action_form"] is None
    every = {"ask-reconciler", "resolve-landed", "resolve-not-executed", "try-again", "enqueue", "expire-now"}
    for client in (operator, admin_client):
        choices = client.get(LIST).context["action_form"].fields["action"].choices
        assert {name for name, _label in choices} - {""} == every


def test_a_link_leads_to_the_dashboard(viewer: Client) -> None:
    assert f'href="{reverse("admin:django_idempotency_dashboard")}"' in viewer.get(LIST).content.decode()


def test_others_see_nothing(client: Client, db: None) -> None:
    found = record(Status.COMPLETED)
    stranger = client_of(User.objects.create_user("stranger", is_staff=True))
    for address in (LIST, page_of(found)):
        assert stranger.get(address).status_code == 403
        assert client.get(address).status_code == 302


def test_a_key_is_never_markup(viewer: Client) -> None:
    record(Status.COMPLETED, key="<script>alert(1)</script>", principal="<b>", operation="<i>")
    page = viewer.get(LIST).content.decode()
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert page.count("<i>") == 0
