"""`idempotency_list` finds records by state, operation, principal and age."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.db.models import F

from django_idempotency.console import keyset
from django_idempotency.monitoring.units import parse_duration
from tests.kit.records import change, claimed, completed, dead_letter, doubtful, id_of
from tests.management.terminals import said

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]


def listed(*arguments: str) -> list[str]:
    return [each["id"] for each in json.loads(said("idempotency_list", *arguments, "--json"))["records"]]


def test_records_are_found_by_their_states_in_the_order_of_the_states() -> None:
    paid, running, unknown, dead = (str(id_of(make())) for make in (completed, claimed, doubtful, dead_letter))
    assert listed("--status", "dead_letter,unknown") == [dead, unknown]
    assert listed("--status", "in_progress") == [running]
    assert listed("--status", "completed, pending") == [paid]
    assert set(listed()) == {dead, unknown, running, paid}


def test_the_newest_records_come_first() -> None:
    young, old = claimed(), claimed()
    change(old, created_at=F("created_at") - timedelta(seconds=1))
    assert listed() == [str(id_of(young)), str(id_of(old))]


@pytest.mark.parametrize("status", ["unknown", "dead_letter", "completed"])
def test_other_conditions_narrow_each_state(status: str) -> None:
    make: Any = {"unknown": doubtful, "dead_letter": dead_letter, "completed": completed}[status]
    old, other, young = make(), make(), make()
    change(old, created_at=F("created_at") - timedelta(minutes=61), principal="user:7", operation="pay")
    change(other, created_at=F("created_at") - timedelta(minutes=61), principal="user:8", operation="ship")
    wanted = ("--status", status)
    assert set(listed(*wanted)) == {str(id_of(each)) for each in (old, other, young)}
    assert set(listed(*wanted, "--older-than=1h")) == {str(id_of(old)), str(id_of(other))}
    assert listed(*wanted, "--older-than=62min") == []
    assert listed(*wanted, "--operation=pay", "--older-than=1h") == [str(id_of(old))]
    assert listed(*wanted, "--principal=user:8") == [str(id_of(other))]


def test_more_than_one_page_is_read_and_no_more_than_the_limit() -> None:
    for _ in range(keyset.PAGE + 2):
        completed()
    found = json.loads(said("idempotency_list", f"--limit={keyset.PAGE + 1}", "--json"))
    assert (len({each["id"] for each in found["records"]}), found["more"]) == (keyset.PAGE + 1, True)
    found = json.loads(said("idempotency_list", f"--limit={keyset.PAGE + 2}", "--json"))
    assert (len({each["id"] for each in found["records"]}), found["more"]) == (keyset.PAGE + 2, False)
    assert said("idempotency_list", "--limit=1").splitlines()[-1] == "1 record; there are more: raise --limit."


def test_a_search_that_no_index_answers_says_how_far_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = keyset.fetch_page
    monkeypatch.setattr("django_idempotency.management.listing.fetch_page", partial(fetch, look=2))
    hidden = completed()
    change(hidden, principal="user:7", created_at=F("created_at") - timedelta(minutes=5))
    for _ in range(3):
        completed()
    found = json.loads(said("idempotency_list", "--principal=user:7", "--json"))
    assert (found["records"], found["more"]) == ([], True)
    assert found["searched_to"].endswith("Z")
    assert "--older-than searches further back" in said("idempotency_list", "--principal=user:7")
    assert listed("--principal=user:7", "--older-than=4min") == [str(id_of(hidden))]


def test_a_person_reads_a_line_for_each_record_and_what_happens_next() -> None:
    dead = dead_letter(principal="user:7")
    line, end = said("idempotency_list", "--status=dead_letter").splitlines()
    assert line.split()[:3] == [str(id_of(dead)), "dead", "letter"]
    assert line.endswith("waits for an operator")
    assert "user:7" in line
    assert end == "1 record."
    assert said("idempotency_list", "--status=expired") == "0 records."


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--status=lost", "'lost' is not a valid Status; give some of pending, in_progress"),
        ("--older-than=soon", "'soon' is not a length of time: give one such as 90s"),
        ("--limit=0", "--limit must be at least 1, and 10000 at most"),
        ("--limit=10001", "--limit must be"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(option: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        said("idempotency_list", option)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("1h30m", 5400), ("5 min", 300), ("2d", 172_800)]
)
def test_a_person_types_a_length_of_time(text: str, seconds: int) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "1x", "1h!", "99999999999999d"])
def test_other_texts_are_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a length of time|is longer than any calendar"):
        parse_duration(text)
