"""The dashboard: right numbers, at a bounded cost, in words that a person understands, for those who may see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_idempotency import Status, maintenance
from django_idempotency.console.dashboard import numbers
from django_idempotency.console.dashboard.numbers import (
    LIMITS,
    PERIODS,
    Figures,
    clear_cache,
    load_figures,
    read_figures,
)
from django_idempotency.console.dashboard.tally import Tally
from django_idempotency.console.wording import format_estimate
from django_idempotency.core.calls import make_record_id
from django_idempotency.models import IdempotencyEvent, IdempotencyKey, MaintenanceRun
from django_idempotency.monitoring.units import format_number
from django_idempotency.store import counts
from django_idempotency.store.dashboard import Group, Limits, Read
from django_idempotency.store.dialects import place_in_id_order
from testproject.history import fill
from tests.kit.records import change, claimed, completed, dead_letter, doubtful
from tests.kit.rows import SCOPE, Row, a_row, put

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]
ON = {"COUNT_OUTCOMES": True}


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    clear_cache()
    yield
    clear_cache()


def asked(period: str = "day") -> Figures:
    return read_figures(PERIODS[period], "default")


def limit(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Read fewer records than the table has, as of a large one."""
    monkeypatch.setattr(numbers, "LIMITS", replace(LIMITS, **limits))


# Numbers


def test_a_small_table_is_counted_exactly() -> None:
    for make in (completed, completed, claimed, doubtful, dead_letter):
        make()
    found = asked()
    assert found.exact
    assert {status: count for status, count in found.states.items() if count} == {
        Status.COMPLETED: 2, Status.IN_PROGRESS: 1, Status.UNKNOWN: 1, Status.DEAD_LETTER: 1,
    }  # fmt: skip
    assert sum(values[-1] for values in found.created.values()) == 5


def test_an_empty_table_is_no_error() -> None:
    found = asked()
    assert set(found.states.values()) == {0}
    assert (found.oldest_doubt, found.overdue, found.operations, found.runs) == (None, 0, {}, {})


def many(count: int, status: Status, **columns: Any) -> list[IdempotencyKey]:
    """Rows whose ids are what a claim would make them."""
    made = []
    for _ in range(count):
        key = str(uuid4())
        row: Row = {**a_row(status), "scope": SCOPE, "key": key, "created_at": timezone.now(), **columns}
        made.append(IdempotencyKey(**{**row, "id": make_record_id(row["scope"], key)}))
    return made


def put_all(*rows: list[IdempotencyKey]) -> None:
    """Insert rows, dead letters with the event by which they are found."""
    made = IdempotencyKey.objects.bulk_create([row for some in rows for row in some], batch_size=500)
    dead = [IdempotencyEvent(record_id=row.pk, kind="dead letter") for row in made if row.status == Status.DEAD_LETTER]
    IdempotencyEvent.objects.bulk_create(dead)


@pytest.mark.slow
def test_a_large_table_is_estimated_and_its_open_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, sample=800)
    now = timezone.now()
    IdempotencyKey.objects.bulk_create(
        [
            *many(2700, Status.COMPLETED, created_at=now - timedelta(minutes=90)),
            *many(300, Status.FAILED, created_at=now - timedelta(hours=20)),
            *many(7, Status.UNKNOWN, created_at=now - timedelta(hours=2)),
        ],
        batch_size=500,
    )
    found = asked()
    assert not found.exact
    assert found.states[Status.UNKNOWN] == 7
    assert 2700 * 0.8 < found.states[Status.COMPLETED] < 2700 * 1.2
    assert 300 * 0.5 < found.states[Status.FAILED] < 300 * 1.6
    assert sum(found.created[Status.COMPLETED][-4:-2]) == 2700, "the newest records are counted"
    assert sum(found.created[Status.UNKNOWN]) == 7


@pytest.mark.parametrize(("rows", "more"), [(4, False), (5, True)])
def test_too_many_open_records_are_estimated_too(monkeypatch: pytest.MonkeyPatch, rows: int, more: bool) -> None:
    limit(monkeypatch, sample=40, open=5)
    IdempotencyKey.objects.bulk_create([*many(60, Status.COMPLETED), *many(rows, Status.UNKNOWN)])
    assert (Status.UNKNOWN in asked().at_least) is more


def test_ids_come_in_the_order_of_their_positions() -> None:
    IdempotencyKey.objects.bulk_create(many(300, Status.COMPLETED))
    ids = IdempotencyKey.objects.order_by("id").values_list("id", flat=True)
    places = [place_in_id_order(each, "default") for each in ids]
    assert places == sorted(places)
    assert 0 <= places[0] < 0.1
    assert 0.9 < places[-1] < 1


@pytest.mark.parametrize(("hours", "slot"), [(0, -1), (0.4, -1), (0.6, -2), (23.9, 0)])
def test_a_key_stands_in_the_half_hour_of_its_creation(hours: float, slot: int) -> None:
    put(Status.COMPLETED, created_at=timezone.now() - timedelta(hours=hours))
    values = asked().created[Status.COMPLETED]
    assert values[slot] == sum(values) == 1


@pytest.mark.parametrize(("hours", "day", "week"), [(23.9, 1, 1), (24.1, 0, 1), (167.9, 0, 1), (168.1, 0, 0)])
def test_a_period_ends(hours: float, day: int, week: int) -> None:
    put(Status.COMPLETED, created_at=timezone.now() - timedelta(hours=hours))
    assert sum(asked("day").created[Status.COMPLETED]) == day
    assert sum(asked("week").created[Status.COMPLETED]) == week


@pytest.mark.parametrize(("seconds", "place"), [(290, 0), (310, 1), (3590, 1), (3610, 2), (604_700, 4), (604_900, 5)])
def test_a_doubt_stands_with_those_of_its_age(seconds: int, place: int) -> None:
    change(doubtful(), created_at=F("created_at") - timedelta(seconds=seconds))
    found = asked()
    assert found.doubts[Status.UNKNOWN][place] == sum(found.doubts[Status.UNKNOWN]) == 1
    assert found.oldest_doubt == pytest.approx(seconds, abs=9)


@pytest.mark.parametrize(("seconds", "overdue"), [(-60, 0), (60, 1)])
def test_a_lease_that_ran_out_is_seen(seconds: int, overdue: int) -> None:
    change(claimed(), locked_until=F("created_at") - timedelta(seconds=seconds))
    assert asked().overdue == overdue


def test_outcomes_are_asked_for_only_where_they_are_counted(settings: Any) -> None:
    counts.accumulate(0, "op", "reserve.replay", 3, "default")
    assert asked().outcomes is None
    settings.IDEMPOTENCY = ON
    found = asked().outcomes
    assert found is not None
    assert sum(found["reserve.replay"]) == 3
    assert len(found["reserve.replay"]) == PERIODS["day"].slots


def test_figures_are_kept_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_figures("day").states[Status.COMPLETED] == 0
    completed()
    with CaptureQueriesContext(connection) as captured:
        assert load_figures("day").states[Status.COMPLETED] == 0
    assert len(captured) == 0
    monkeypatch.setattr(numbers, "FRESH_SECONDS", 0.0)
    assert load_figures("day").states[Status.COMPLETED] == 1


# The page


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def page(client: Client, period: str = "day", **chosen: str) -> str:
    answer = client.get(reverse("admin:django_idempotency_dashboard"), {"period": period, **chosen})
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("period", [*PERIODS, "no such"])
def test_a_history_is_shown(admin: Client, settings: Any, period: str) -> None:
    settings.IDEMPOTENCY = ON
    assert fill() > 100
    assert fill() == 0
    text = page(admin, period)
    assert "3 outcomes need a person" in text
    assert text.count('class="chart"') == 6
    assert text.count('class="scroll"') == 10
    assert not re.search(r"<[^>]+\sstyle=", text)


def test_nothing_at_all_is_said_in_words(admin: Client) -> None:
    for job in (maintenance.sweep, maintenance.reconcile, maintenance.resume, maintenance.reap):
        job()
    text = page(admin)
    assert "No problems found" in text
    assert "No key has been used yet" in text
    assert "No outcome is unknown" in text
    assert "COUNT_OUTCOMES" in text
    assert 'class="chart"' not in text


def test_a_table_without_open_records_says_so(admin: Client) -> None:
    completed()
    assert "Nothing is open: every record is finished." in page(admin)


def test_an_operations_name_is_no_markup(admin: Client) -> None:
    completed("<b>bold</b>")
    assert "<b>bold</b>" not in page(admin)


@pytest.mark.urls("tests.http.inventory_views")
def test_endpoints_are_listed_with_the_figures_of_their_operations(admin: Client) -> None:
    for _ in range(100):
        completed("orders.pay")
    IdempotencyKey.objects.update(completed_at=F("last_run_at") + timedelta(seconds=4))
    text = page(admin)
    assert "unprotected: 5, exempt: 3, protected: 9" in text
    assert cells(text, "PATCH POST /shop/pay/") == ["protected", "orders.pay", "100", "4 s"]
    assert cells(text, "PATCH /shop/change/&lt;uuid:pk&gt;/") == ["protected", "shop:change", "-", "-"]
    assert cells(text, "any /legacy/") == ["unprotected", "-", "-", "-"]
    assert "GET /feed/" not in text
    assert text.index("any /legacy/") < text.index("POST /hook/") < text.index("PATCH POST /shop/pay/")


def cells(text: str, heading: str) -> list[str]:
    """The cells of one row of a table."""
    (row,) = re.findall(rf'<th scope="row">{re.escape(heading)}</th>(.*?)</tr>', text)
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall("<td>(.*?)</td>", row)]


@pytest.mark.urls("tests.http.inventory_views")
def test_wrong_settings_do_not_break_the_page(admin: Client, settings: Any) -> None:
    settings.IDEMPOTENCY = {"LEASE": "soon"}
    assert "No endpoint takes POST or PATCH." in page(admin)


def test_a_job_that_failed_or_stopped_is_complained_about(admin: Client) -> None:
    MaintenanceRun.objects.create(job="reap", error="OperationalError: gone", counts=json.dumps({"deleted": 3}))
    MaintenanceRun.objects.create(job="sweep", finished_at="2000-01-01T00:00Z", counts=json.dumps({"unknown": 3}))
    text = page(admin)
    assert "The last run of reap failed: OperationalError: gone" in text
    assert "The last run of sweep ended" in text
    assert "became unknown: 3" in text
    assert "reconcile has never run to its end" in text


def test_a_short_lease_is_complained_about(admin: Client) -> None:
    for _ in range(100):
        completed("tests.slow", lease=timedelta(seconds=10))
    IdempotencyKey.objects.update(completed_at=F("last_run_at") + timedelta(seconds=4))
    assert "Operation tests.slow has a lease of 10 s" in page(admin)


@pytest.mark.parametrize(("permission", "status"), [("view_idempotencykey", 200), ("expire_now", 403), (None, 403)])
def test_who_may_view_the_records_may_see_it(client: Client, permission: str | None, status: int) -> None:
    person = User.objects.create_user("staff", is_staff=True)
    if permission:
        person.user_permissions.add(Permission.objects.get(codename=permission))
    client.force_login(person)
    assert client.get(reverse("admin:django_idempotency_dashboard")).status_code == status


def test_a_stranger_is_asked_to_log_in(client: Client) -> None:
    assert client.get(reverse("admin:django_idempotency_dashboard")).status_code == 302


# Figures agree


CROWDS = {"counted": {"sample": 40, "open": 50}, "estimated": {"sample": 40, "open": 10}}


@pytest.mark.parametrize("crowd", CROWDS)
def test_figures_about_unknown_outcomes_agree_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, crowd: str
) -> None:
    limit(monkeypatch, newest=5, **CROWDS[crowd])
    now = timezone.now()
    ages = [*[timedelta(hours=3)] * 28, *[timedelta(hours=20)] * 2]
    IdempotencyKey.objects.bulk_create(
        [
            *many(60, Status.COMPLETED, operation="a"),
            *(row for age in ages for row in many(1, Status.UNKNOWN, operation="a", created_at=now - age)),
        ]
    )
    found = asked()
    assert (Status.UNKNOWN in found.at_least) is (crowd == "estimated")
    assert found.work["a"].unknown == sum(found.doubts[Status.UNKNOWN]) == found.states[Status.UNKNOWN]
    (cause,) = found.causes
    if crowd == "counted":
        assert found.doubts[Status.UNKNOWN] == [0, 0, 28, 2, 0, 0]
        assert found.oldest_doubt == pytest.approx(20 * 3600, abs=60)
        assert cause.count == sum(found.created[Status.UNKNOWN]) == found.states[Status.UNKNOWN] == 30


def test_an_age_group_that_was_seen_is_never_shown_as_empty() -> None:
    """A rare age may be missing from the sample, and a frequent one from what was read."""

    def group(age_group: int, count: int) -> Group:
        return Group(Status.UNKNOWN, "a", "", "", "", False, 0, age_group, count, 60.0, None, None, 0)

    parts = {"sample": [group(2, 5)], "newest": [], "lease": [], "doubt": [group(3, 10)], "dead": []}
    tally = Tally(Read(parts, 7.0, timezone.now()), Limits(sample=5, newest=5, open=10), width=60)
    assert tally.count_all(lambda each: each.age_group) == {2: 35, 3: 10}


def test_a_short_period_of_a_large_table_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, sample=20, newest=30)
    old = timezone.now() - timedelta(hours=9)
    IdempotencyKey.objects.bulk_create(
        [*many(100, Status.COMPLETED, created_at=old), *many(29, Status.COMPLETED, operation="b")]
    )
    found = asked("hour")
    assert (found.exact, found.exact_created) == (False, True)
    assert sum(found.created[Status.COMPLETED]) == found.work["b"].created == 29


def test_failures_are_what_did_not_succeed() -> None:
    answered = [many(1, Status.COMPLETED, operation="op", response_status=code) for code in (503, 402)]
    put_all(*(many(1, status, operation="op") for status in Status), *answered)
    work = asked().work["op"]
    assert (work.created, work.failed, work.unknown, work.dead_letters) == (10, 5, 1, 1)


def test_one_operation_can_be_looked_at_alone(settings: Any) -> None:
    settings.IDEMPOTENCY = ON
    for name, count in (("one", 2), ("other", 3)):
        put_all(*(many(count, status, operation=name) for status in (Status.UNKNOWN, Status.COMPLETED)))
        counts.accumulate(0, name, "reserve.replay", count, "default")
    alone = load_figures("day", "one")
    assert (alone.states[Status.UNKNOWN], sum(alone.created[Status.COMPLETED]), sum(alone.doubts[Status.UNKNOWN])) == (
        2,
    ) * 3
    assert set(alone.work) == {"one"}
    assert {cause.operation for cause in alone.causes} == {"one"}
    assert alone.outcomes is not None
    assert sum(alone.outcomes["reserve.replay"]) == 2
    assert load_figures("day").states[Status.UNKNOWN] == 5
    assert alone.findings == load_figures("day").findings, "what needs attention does not depend on it"


# Links


def list_links(text: str) -> list[tuple[str, str]]:
    """The numbers of the tables that lead to records: text and address."""
    found = re.findall(r'<a href="([^"]*/idempotencykey/\?[^"]*)">([^<]*)</a>', text)
    return [(label, unescape(url)) for url, label in found]


@pytest.mark.slow
def test_behind_every_number_are_as_many_records(admin: Client, settings: Any) -> None:
    fill()
    numbers_seen = 0
    for label, url in list_links(page(admin)):
        if label.isdecimal() and int(label) <= 50:
            rows = admin.get(url).context["cl"].result_list
            assert len(rows) == int(label), url
            numbers_seen += 1
    assert numbers_seen > 60


def test_each_complaint_leads_to_what_it_is_about(admin: Client) -> None:
    fill()
    MaintenanceRun.objects.create(job="work", error="OperationalError: gone")
    text = page(admin)
    problems = text[text.index('class="problems"') : text.index('class="sections"')]
    led = {unescape(url).rpartition("/")[2] for url in re.findall(r'<li><a href="([^"]+)"', problems)}
    assert {"?needs=person", "?needs=unattended", "?status=unknown", "#jobs"} <= led
    assert problems.count("<li>") == problems.count("<li><a ")
    assert 'id="jobs"' in text


@pytest.mark.parametrize("period", PERIODS)
def test_the_operation_and_the_period_stay_chosen(admin: Client, period: str) -> None:
    put_all(*(many(1, Status.UNKNOWN, operation=name) for name in ("one", "two")))
    text = page(admin, period, operation="one", live="1")
    assert '<option value="one" selected>one</option>' in text
    assert f'href="?period={period}&amp;operation=one"' in text, "the link that pauses"
    lists = [parse_qs(urlsplit(url).query) for _, url in list_links(text)]
    assert lists
    assert {query["operation"][0] for query in lists if "status" in query} == {"one"}


@pytest.mark.parametrize(("live", "header"), [("1", "30"), ("", None)])
def test_the_browser_refreshes_the_page_only_if_asked(admin: Client, live: str, header: str | None) -> None:
    answer = admin.get(reverse("admin:django_idempotency_dashboard"), {"live": live})
    assert answer.headers.get("Refresh") == header
    assert ("Pause the refresh" in answer.content.decode()) is bool(live)


def test_the_admins_index_leads_to_it(admin: Client, client: Client) -> None:
    entry = "/admin/django_idempotency/dashboard/"
    assert entry in admin.get("/admin/").content.decode()
    assert admin.get(entry).headers["Location"] == reverse("admin:django_idempotency_dashboard")
    listed = admin.get("/admin/django_idempotency/").content.decode()
    assert entry in listed
    assert "changelink" not in listed, "nothing can be changed there"
    client.force_login(User.objects.create_user("stranger", is_staff=True))
    assert entry not in client.get("/admin/").content.decode()


def test_its_breadcrumbs_lead_back(admin: Client) -> None:
    text = page(admin)
    crumbs = text[text.index("breadcrumbs") : text.index("<h1")]
    assert reverse("admin:django_idempotency_idempotencykey_changelist") in crumbs
    assert "<title>Idempotency dashboard | " in text


def test_a_job_that_never_ended_has_no_result(admin: Client) -> None:
    MaintenanceRun.objects.create(job="sweep", started_at=timezone.now())
    assert cells(page(admin), "sweep: Mark attempts whose lease expired as unknown, and send lost messages again.") == [
        "never",
        "",
    ]


# What it costs


@pytest.mark.parametrize("superuser", [True, False])
def test_it_takes_at_most_eight_queries(client: Client, settings: Any, superuser: bool) -> None:
    settings.IDEMPOTENCY = ON
    fill()
    person = User.objects.create_user("staff", is_staff=True, is_superuser=superuser)
    person.user_permissions.add(Permission.objects.get(codename="view_idempotencykey"))
    client.force_login(person)
    with CaptureQueriesContext(connection) as captured:
        page(client)
    assert len(captured) <= 8, [query["sql"][:80] for query in captured]


def test_no_query_scans_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, sample=100, newest=100)  # of a sample that is a good part of the table, a scan is the best plan
    if connection.vendor != "postgresql":
        pytest.skip("the plans are PostgreSQL's")
    now = timezone.now()
    IdempotencyKey.objects.bulk_create(
        [
            *many(20_000, Status.COMPLETED, created_at=now - timedelta(hours=1), response_body=b"x" * 200),
            *many(100, Status.UNKNOWN),
            *many(50, Status.IN_PROGRESS),
        ],
        batch_size=2000,
    )
    for _ in range(5):
        dead_letter()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE idempotency_key")
        cursor.execute("ANALYZE idempotency_event")
    with CaptureQueriesContext(connection) as captured:
        found = asked()
    assert (found.states[Status.UNKNOWN], found.states[Status.DEAD_LETTER]) == (100, 5)
    queries = [query["sql"] for query in captured]
    assert any("idempotency_event" in sql for sql in queries)
    for sql in queries:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
        assert "Seq Scan on idempotency_key" not in plan, plan


# Words


@pytest.mark.parametrize(("value", "said"), [(0, "≈ 0"), (99, "≈ 99"), (1234, "≈ 1,200"), (987_654, "≈ 990,000")])
def test_an_estimate_does_not_pretend(value: int, said: str) -> None:
    assert format_estimate(value) == said


@pytest.mark.parametrize(("value", "said"), [(99, "99"), (1234, "1,234")])
def test_a_count_is_exact(value: int, said: str) -> None:
    assert format_number(value) == said
