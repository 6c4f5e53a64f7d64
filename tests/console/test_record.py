"""The page of one record: what happened, what is shown to whom, and what it costs."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

import django_idempotency
from django_idempotency import Status
from django_idempotency.console import bodies, record, timeline
from django_idempotency.console.relations import decode_scope
from django_idempotency.console.wording import STATES
from django_idempotency.core.audit import Kind
from django_idempotency.core.links import docs_url
from django_idempotency.core.progress import Moment, Progress
from django_idempotency.core.refs import Ref
from django_idempotency.models import IdempotencyEvent
from django_idempotency.monitoring.units import format_duration, format_interval
from django_idempotency.reconciliation import NotLanded, reconciler
from django_idempotency.store import events
from testproject.payments.models import Payment
from tests.kit import console as people
from tests.kit.console import client_of, many, page_of, person

pytestmark = pytest.mark.django_db

PLANTED = "planted-4242"


def text(client: Client, found: UUID) -> str:
    page = client.get(page_of(found))
    assert page.status_code == 200
    return page.content.decode()


def titles(client: Client, found: UUID) -> list[str]:
    return [str(entry.title) for entry in client.get(page_of(found)).context["story"].entries]


@pytest.mark.parametrize("status", Status)
def test_every_state_has_a_page_that_explains_it(viewer: Client, status: Status) -> None:
    page = text(viewer, people.record(status))
    assert str(STATES[status].meaning).replace("'", "&#x27;") in page
    assert str(STATES[status].label) in page


def test_the_story_is_in_the_order_in_which_it_happened(viewer: Client) -> None:
    began = timezone.now() - timedelta(hours=2)
    minute = 60_000
    progress = (
        Progress()
        .mark_done("book", {"id": 1}, Moment(2 * minute, 1))
        .mark_started("charge", Moment(3 * minute, 1))
        .mark_done("charge", "ch_1", Moment(22 * minute, 2))
        .mark_started("mail", Moment(23 * minute, 2))
    )
    found = people.record(
        Status.UNKNOWN,
        created_at=began,
        last_run_at=began + timedelta(minutes=20),
        attempts=2,
        reconcile_attempts=3,
        run_name="rides.create",
        progress=progress.dump(),
    )
    ref = Ref("scope", found, "default")
    events.write(ref, Kind.LEASE_EXPIRED)
    events.write(ref, Kind.TAKEN_OVER, actor="resumer", details={"attempt": 2})
    events.write(ref, Kind.IN_DOUBT, reason="GatewayUnanswered", details={"attempt": 2, "seconds": 1.4})
    events.write(ref, Kind.INCONCLUSIVE, reason="TimeoutError", details={"try": 3, "of": 10, "wait": 90})
    for minutes, event in zip((10, 20, 24, 30), IdempotencyEvent.objects.order_by("id"), strict=True):
        IdempotencyEvent.objects.filter(pk=event.pk).update(at=began + timedelta(minutes=minutes))
    assert titles(viewer, found) == [
        "Claimed",
        "Step done: book",
        "Step begun: charge",
        "The lease expired: the attempt's outcome is not known",
        "Taken over and continued",
        "Step done: charge",
        "Step begun, its outcome is not known: mail",
        "The attempt ended without a known outcome",
        "The reconciler could not tell what happened",
    ]
    page = text(viewer, found)
    for words in (
        "by resumer",
        "GatewayUnanswered",
        "after 1.4 s of a 5 min lease",
        "try 3 of 10",
        "next check after 1 min 30 s",
        "3 of 10 tries used",
    ):
        assert words in page, words


def test_steps_without_times_are_shown_apart(viewer: Client) -> None:
    """As an older version recorded them: nothing tells where they belong."""
    progress = '{"version":1,"steps":[["book","done",1],["charge","started",null]]}'
    found = people.record(Status.UNKNOWN, run_name="rides.create", progress=progress)
    story = viewer.get(page_of(found)).context["story"]
    assert [str(entry.title) for entry in story.entries] == ["Claimed"]
    assert [str(entry.title) for entry in story.undated] == [
        "Step done: book",
        "Step begun, its outcome is not known: charge",
    ]
    assert "recorded without times" in text(viewer, found)


def test_a_thousand_steps_stay_readable(operator: Client) -> None:
    progress = Progress()
    for number in range(1_000):
        progress = progress.mark_done(f"page_{number}", number, Moment(number, 1))
    began = timezone.now()
    found = people.record(
        Status.IN_PROGRESS,
        run_name="exports.create",
        progress=progress.dump(),
        created_at=began,
        last_run_at=began,
    )
    page = operator.get(page_of(found))
    entries = page.context["story"].entries
    assert len(entries) == 1 + 3 + 1 + 3
    assert (str(entries[4].title), len(entries[4].folded)) == ("994 more steps", 994)
    assert b"Step done: page_500" in page.content
    assert b"Results of 1000 steps" in page.content


def test_an_answer_says_how_long_its_attempt_took(viewer: Client) -> None:
    now = timezone.now()
    found = people.record(Status.COMPLETED, last_run_at=now - timedelta(seconds=1.4), completed_at=now)
    assert "after 1.4 s of a 5 min lease" in text(viewer, found)
    events.write(Ref("scope", found, "default"), Kind.CONFIRMED, actor="ops")
    assert "of a 5 min lease" not in text(viewer, found), "a verdict stored it"


def test_a_message_is_for_those_who_may_see_contents(viewer: Client, operator: Client) -> None:
    found = people.record(Status.UNKNOWN)
    details = {"message": f"no answer about {PLANTED}", "trace": "4bf92f3577b34da6"}
    events.write(Ref("scope", found, "default"), Kind.IN_DOUBT, reason="Timeout", details=details)
    assert PLANTED not in text(viewer, found)
    assert PLANTED in text(operator, found)
    assert "4bf92f3577b34da6" in text(viewer, found)


@pytest.mark.parametrize("details", ["[1]", "{", '{"derived": [1, null]}', '{"derived": 7}', '{"try": 1, "wait": "x"}'])
def test_details_that_cannot_be_read_break_no_page(viewer: Client, details: str) -> None:
    found = people.record(Status.UNKNOWN)
    IdempotencyEvent.objects.create(record_id=found, kind="inconclusive", details=details)
    assert "The reconciler could not tell what happened" in titles(viewer, found)


# What is needed to look on the other side


def test_the_downstream_keys_are_there_to_be_copied(viewer: Client, settings: Settings) -> None:
    settings.IDEMPOTENCY = {"PROVIDER_URL": "https://bank.example/search?q={key}"}
    progress = (
        Progress()
        .mark_done("book", 1, Moment(1, 1))
        .mark_started("hold", Moment(2, 1))
        .mark_done("hold", 1, Moment(3, 1))
        .mark_started("charge", Moment(4, 1))
    )
    found = people.record(Status.UNKNOWN, run_name="rides.create", progress=progress.dump())
    events.write(Ref("scope", found, "default"), Kind.IN_DOUBT, details={"derived": ["mail", "charge"]})
    page = viewer.get(page_of(found))
    row, shown = page.context["row"], page.context["downstream"]
    assert [(each.step, each.in_doubt) for each in shown.keys] == [("charge", True), ("hold", False), ("mail", False)]
    content = page.content.decode()
    for each in shown.keys:
        assert each.key == row.derive(each.step)
        assert f'data-copy="{each.key}"' in content
        assert f'href="https://bank.example/search?q={each.key}"' in content
    assert row.derive("another") == f"{shown.prefix}another"


def test_where_no_step_is_known_the_beginning_of_the_keys_is(viewer: Client) -> None:
    found = people.record(Status.UNKNOWN)
    page = viewer.get(page_of(found))
    assert page.context["downstream"].keys == []
    assert f'data-copy="{page.context["row"].derive("x")[:-1]}"' in page.content.decode()


# Who and what it is about


def test_the_principal_has_a_name_and_a_page(viewer: Client, operator: Client) -> None:
    carol = User.objects.create_user("carol")
    found = people.record(Status.COMPLETED, principal=f"user:{carol.pk}")
    assert "carol" in text(viewer, found)
    address = reverse("admin:auth_user_change", args=[carol.pk])
    assert address not in text(viewer, found), "not for this person"
    User.objects.get(username="operator").user_permissions.add(Permission.objects.get(codename="view_user"))
    assert address in text(operator, found)


@pytest.mark.parametrize("principal", ["user:no.model:7", "user:x", "user:", "user:999999", "tenant-7", ""])
def test_a_principal_that_is_no_user_is_shown_as_it_is(viewer: Client, principal: str) -> None:
    page = viewer.get(page_of(people.record(Status.COMPLETED, principal=principal)))
    assert page.context["principal"] is None


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        ("6:user:715:payments.create", ["user:7", "payments.create"]),
        ("4:acme6:user:73:pay", ["acme", "user:7", "pay"]),
        ("once:payouts", ["once:payouts"]),
        ("5:short", ["short"]),
        ("9:short", ["9:short"]),
        ("6:user:7rest", ["6:user:7rest"]),
    ],
)
def test_a_scope_is_shown_in_its_parts(scope: str, parts: list[str]) -> None:
    assert decode_scope(scope) == parts


def test_rows_that_point_at_the_record(viewer: Client) -> None:
    found = people.record(Status.COMPLETED)
    assert list(viewer.get(page_of(found)).context["related"]) == []
    owner = User.objects.create_user("carol")
    made = [
        Payment.objects.create(owner=owner, amount=1, currency="EUR", customer="ada", idempotency_key_id=found)
        for _ in range(2)
    ]
    (link,) = viewer.get(page_of(found)).context["related"]
    assert link.text == f"payment {made[0].pk}"
    assert f"payment {made[0].pk}" in text(viewer, found)


# What a person does next


def test_where_nobody_will_ask_the_page_says_so_and_offers_what_helps(operator: Client) -> None:
    progress = Progress().mark_started("charge_created", Moment(1, 1)).dump()
    row = {"operation": "rides.create", "run_name": "rides.create", "progress": progress}
    found = people.record(Status.UNKNOWN, **row)
    page = text(operator, found)
    assert "No reconciler is registered for rides.create or its step charge_created. Settle it by hand." in page
    assert "act/ask-reconciler" not in page
    assert "act/resolve-landed" in page
    assert "act/resolve-not-executed" in page
    assert found in [each.pk for each in operator.get(f"{people.LIST}?needs=unattended").context["cl"].result_list]
    assert b"waits for an operator, because its operation has no reconciler" in operator.get(people.LIST).content


def test_who_asks_next_when_and_for_which_time(viewer: Client) -> None:
    due = timezone.now() + timedelta(minutes=4, seconds=30)
    found = people.record(Status.UNKNOWN, reconcile_after=due, reconcile_attempts=2)
    assert re.search(r"reconciler check in 4 min \d+ s \(try 3 of 10\)", text(viewer, found))


@pytest.mark.parametrize(("deferred", "who"), [(False, "the resumer"), (True, "a worker")])
def test_who_continues_an_operation(viewer: Client, deferred: bool, who: str) -> None:
    due = timezone.now() + timedelta(minutes=4, seconds=30)
    row: Any = {"run_name": "rides.create", "on_lost_lease": "resume", "deferred": deferred, "attempts": 2}
    found = people.record(Status.UNKNOWN, reconcile_after=due, **row)
    assert "The operation continues after the last step" in text(viewer, found)
    assert re.search(rf"{who} continues it in 4 min \d+ s \(attempt 3 of 10\)", text(viewer, found))
    late = people.record(Status.UNKNOWN, key="late", reconcile_after=timezone.now() - timedelta(minutes=5), **row)
    assert f"{who} should have continued it 5 min ago" in text(viewer, late)


def test_an_expired_lease_says_how_long_it_was_and_how_late_it_was_noticed(viewer: Client) -> None:
    began = timezone.now() - timedelta(seconds=40)
    found = people.record(Status.UNKNOWN, events=["lease expired"], last_run_at=began, lease_seconds=30)
    IdempotencyEvent.objects.filter(record_id=found).update(at=began + timedelta(seconds=32))
    assert "longer than the lease of 30 s" in text(viewer, found)


@pytest.mark.parametrize("url", [None, "/our/runbook"])
def test_the_runbook_is_on_the_page(operator: Client, settings: Settings, url: str | None) -> None:
    settings.IDEMPOTENCY = {"RUNBOOK_URL": url}
    page = text(operator, people.record(Status.DEAD_LETTER))
    assert "The provider was down and is back" in page
    assert f'href="{url or docs_url("how-to/runbooks", "idempotencydeadletters")}"' in page
    assert "The provider was down and is back" not in text(operator, people.record(Status.COMPLETED, key="done"))


@pytest.mark.parametrize(
    ("columns", "section"),
    [
        ({"operation": "tests.asked"}, "idempotencyunknownold"),
        ({"operation": "tests.alone"}, "idempotencyunattended"),
        ({"run_name": "rides.create", "on_lost_lease": "resume"}, "idempotencyresumingfails"),
    ],
)
def test_the_runbook_fits_the_record(
    operator: Client, registrations: None, columns: dict[str, Any], section: str
) -> None:
    reconciler("tests.asked")(lambda _row: NotLanded())
    assert f'{docs_url("how-to/runbooks", section)}"' in text(operator, people.record(Status.UNKNOWN, **columns))


def test_the_neighbours_have_their_times(viewer: Client) -> None:
    found = people.record(Status.COMPLETED)
    people.record(Status.COMPLETED, key="other")
    page = text(viewer, found)
    assert "about the same time" in page
    assert 'datetime=""' not in page


def test_an_earlier_life_of_the_key_is_marked(viewer: Client) -> None:
    found = people.record(Status.COMPLETED, created_at=timezone.now())
    IdempotencyEvent.objects.create(record_id=found, kind="in doubt", at=timezone.now() - timedelta(days=3))
    first, *_others = viewer.get(page_of(found)).context["story"].entries
    assert (first.is_earlier, str(first.title)) == (True, "The attempt ended without a known outcome")
    assert "before the key was claimed again" in text(viewer, found)


def test_a_kind_that_the_console_does_not_know_is_shown_as_it_is(viewer: Client) -> None:
    assert "from a later version" in titles(viewer, people.record(Status.COMPLETED, events=["from a later version"]))


def test_every_kind_has_its_words() -> None:
    assert set(timeline.KINDS) == set(Kind)


@pytest.mark.parametrize(("count", "words"), [(1, "1 time<"), (4, "4 times<"), (5, "5 times or more")])
def test_a_key_that_was_sent_with_a_different_request(viewer: Client, count: int, words: str) -> None:
    began = timezone.now() - timedelta(hours=1)
    found = people.record(Status.COMPLETED, created_at=began)
    for number in range(count):
        IdempotencyEvent.objects.create(
            record_id=found,
            kind="mismatch",
            actor="user:8",
            reason="path, content_type",
            at=began + timedelta(minutes=number),
        )
    IdempotencyEvent.objects.create(record_id=found, kind="mismatch", at=began - timedelta(days=1))
    page = text(viewer, found)
    assert titles(viewer, found).count("The key was sent with a different request, which was refused") == count + 1
    assert "by user:8" in page
    assert "Different: path and content type" in page
    assert "Which part differs is not known." in page
    assert words in page


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
    bar = re.search(r'max="3600" low="3599" high="3599" optimum="0" value="([^"]*)"', text(viewer, found))
    assert bar is not None
    assert 1799 <= int(bar[1]) < 1900


@pytest.mark.parametrize(("seconds", "over", "words"), [(299, False, " of 5 min left"), (-2, True, "expired 2 s ago")])
def test_the_lease_bar(viewer: Client, seconds: int, over: bool, words: str) -> None:
    found = people.record(Status.IN_PROGRESS, locked_until=timezone.now() + timedelta(seconds=seconds))
    bar = viewer.get(page_of(found)).context["bar"]
    assert (bar["over"], bar["whole"]) == (over, 300)
    assert words in bar["text"]
    assert 0 <= bar["used"] <= 300
    assert (bar["used"] > bar["last"]) == over, "beyond `high`, where the browser paints it red"
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
