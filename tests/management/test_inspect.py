"""`idempotency_inspect` tells the story of a record, and keeps its secrets."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from django.core.management import call_command
from django.db.models import F
from django.utils.translation import override

from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import doubt
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.reconciliation import Inconclusive, Landed, reconciler, resolve
from django_idempotency.store import attempts
from django_idempotency.store.operations import StoredOperation
from tests.kit.records import (
    CREATED,
    age,
    change,
    claimed,
    completed,
    dead_letter,
    doubtful,
    id_of,
    row_of,
)
from tests.kit.registrations import temporary_registrations
from tests.management.terminals import Terminal, said

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

STEPS = '{"version":1,"steps":[["reserve","done",1],["book","done",2],["charge","started",null]]}'

REPLACED: Final = {"STATUS": "201", "BODY": '{"id": 7}', "WHO": "ada", "WHY": "seen at the provider"}


def test_the_story_has_facts_events_and_what_can_be_done() -> None:
    attempt = doubtful()
    change(attempt, created_at=F("created_at") - timedelta(hours=23, minutes=36), principal="user:7")
    text = said("idempotency_inspect", str(id_of(attempt)))
    facts, happened = text.split("What happened")
    happened, possible = happened.split("What you can do")
    assert facts.startswith("tests.records: unknown\n  The outcome is not known.")
    assert "23 h 36 min ago" in facts
    assert f"downstream keys  begin with {attempt.derive('-')[:-1]}\n" in facts
    assert "No reconciler is registered for tests.records. Settle it by hand." in facts
    assert "Claimed, by user:7 (T1)" in happened
    assert "The attempt ended without a known outcome (T5)\n" in happened
    assert f"python manage.py idempotency_resolve {id_of(attempt)} --not-executed --by 'WHO' --reason 'WHY'" in possible
    assert "--try-again" not in possible, "it is no dead letter"
    assert "idempotency_reconcile" not in possible, "nobody is registered to be asked"


def test_steps_are_counted_and_not_their_marks() -> None:
    attempt = doubtful()
    change(attempt, run_name="tests.ride", progress=STEPS, steps_done=4, recovery_point="book")
    text = said("idempotency_inspect", str(id_of(attempt)))
    assert "2 done, 1 in doubt: charge" in text
    assert f"downstream keys  {attempt.derive('charge')}" in text
    found = json.loads(said("idempotency_inspect", str(id_of(attempt)), "--json"))
    assert (found["steps_done"], found["steps_in_doubt"], found["marks"]) == (["reserve", "book"], ["charge"], 4)
    assert found["downstream_keys"]["charge"] == attempt.derive("charge")


def lose_a_charge(claim: Claim) -> None:
    for step in ("hold", "charge", "hold"):
        claim.derive(step)
    raise TimeoutError


def test_the_keys_that_the_work_derived_are_there_to_be_searched_for() -> None:
    with pytest.raises(TimeoutError):
        once(scope="payouts", key="ada", run=lose_a_charge)
    row = IdempotencyKey.objects.get()
    keys = {step: row.derive(step) for step in ("hold", "charge")}
    assert f"downstream keys  {keys['hold']}, {keys['charge']}\n" in said("idempotency_inspect", "ada")
    found = json.loads(said("idempotency_inspect", "ada", "--json"))
    assert found["downstream_keys"] == keys
    assert "steps_done" not in found


@pytest.mark.parametrize("form", [[], ["--json"], ["--all", "--body"]])
def test_progress_that_cannot_be_read_does_not_hide_the_rest(form: list[str]) -> None:
    attempt = doubtful()
    change(attempt, run_name="tests.ride", progress="no JSON")
    assert str(id_of(attempt)) in said("idempotency_inspect", str(id_of(attempt)), *form)


def test_programs_read_one_object_with_times_of_rfc_3339() -> None:
    attempt = doubtful()
    resolve(id_of(attempt), Landed(CREATED), by="ops@example.com", reason="seen", operator=True)
    found = json.loads(said("idempotency_inspect", str(id_of(attempt)), "--json"))
    assert (found["id"], found["status"], found["response_status"]) == (str(id_of(attempt)), "completed", 201)
    assert [event["transition"] for event in found["events"]] == ["T5", "T13"]
    created = row_of(attempt).created_at
    assert found["created_at"].endswith("Z")
    assert datetime.fromisoformat(found["created_at"]) == created.astimezone(UTC)
    assert datetime.fromisoformat(found["events"][0]["at"]).tzinfo is not None


def test_stored_json_is_no_text_inside_json() -> None:
    attempt = completed()
    change(attempt, arguments='{"order": 7}', response_headers='[["Location", "/orders/7"]]')
    found = json.loads(said("idempotency_inspect", str(id_of(attempt)), "--body", "--json"))
    assert (found["arguments"], found["response_headers"]) == ({"order": 7}, [["Location", "/orders/7"]])


@pytest.mark.parametrize("form", [[], ["--json"], ["--body"], ["--body", "--json"]])
def test_the_attempt_token_is_shown_on_request_alone(form: list[str]) -> None:
    attempt = doubtful()
    token = str(row_of(attempt).attempt_token)
    assert token not in said("idempotency_inspect", str(id_of(attempt)), *form)
    assert token in said("idempotency_inspect", str(id_of(attempt)), *form, "--all")


def test_all_columns_do_not_include_contents() -> None:
    attempt = completed()
    change(attempt, arguments='{"card": "4242424242424242"}')
    assert "42424242" not in said("idempotency_inspect", str(id_of(attempt)), "--all")
    assert "lease_seconds: 300" in said("idempotency_inspect", str(id_of(attempt)), "--all")


def test_a_terminal_gets_lines_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    attempt, terminal = doubtful(), Terminal()
    resolve(id_of(attempt), Landed(CREATED), by="ada", reason="seen " * 40, operator=True)
    call_command("idempotency_inspect", str(id_of(attempt)), stdout=terminal, no_color=True)
    _, reasons = terminal.getvalue().split("Settled: it happened")
    assert max(len(line) for line in reasons.splitlines() if "seen" in line) <= 60


def test_a_command_speaks_english_in_every_language() -> None:
    attempt = doubtful()
    with override("de"):
        assert "No reconciler is registered" in said("idempotency_inspect", str(id_of(attempt)))
        assert "1 record." in said("idempotency_list")


def waiting() -> Attempt:
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.waiting", "{}", "{}", 0), 60)
    age(attempt, "locked_until")
    return attempt


def asked_about() -> Attempt:
    reconciler("tests.asked")(lambda record: Inconclusive())
    return doubtful("tests.asked")


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (doubtful, ["--landed", "--not-executed"]),
        (asked_about, ["idempotency_reconcile", "--landed", "--not-executed"]),
        (dead_letter, ["--landed", "--not-executed", "--try-again"]),
        (completed, ["--expire"]),
        (waiting, ["--landed", "--enqueue"]),
    ],
)
def test_each_command_works_once_its_words_in_capitals_are_replaced(make: Any, options: list[str]) -> None:
    """As a shell splits the line that was pasted."""
    for option in options:
        IdempotencyKey.objects.all().delete()
        with temporary_registrations():
            possible = said("idempotency_inspect", str(id_of(make()))).partition("What you can do\n")[2]
            lines = possible.splitlines()[::2]
            assert [name for name in options if any(name in line for line in lines)] == options
            assert len(lines) == len(options)
            (line,) = (line for line in lines if option in line)
            python, program, *command = shlex.split(line)
            assert (python, program) == ("python", "manage.py")
            assert said(*(REPLACED.get(word, word) for word in command))


def test_the_database_is_named_where_it_is_not_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = doubtful()
    monkeypatch.setattr("django_idempotency.management.decisions.alias", lambda: "another")
    text = said("idempotency_inspect", str(id_of(attempt)), "--database=default")
    assert "--not-executed --database default --by" in text


@pytest.mark.parametrize(
    ("make", "option"),
    [(lambda: doubtful(grace_over=False), "--not-executed"), (lambda: waiting_for(60), "--enqueue")],
    ids=["grace", "message"],
)
def test_what_will_be_possible_later_says_when(make: Any, option: str) -> None:
    attempt = make()
    text = said("idempotency_inspect", str(id_of(attempt))).partition("What you can do")[2]
    (label,) = re.findall(rf"{option} .*\n +(.*)$", text, re.MULTILINE)
    found = re.fullmatch(r".*; possible from (\S+ \S+) on, in \d+ .*", label)
    assert found is not None, label
    row = row_of(attempt)
    ends = row.grace_until if option == "--not-executed" else row.locked_until
    assert ends is not None
    then = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    assert timedelta(0) <= then - ends.astimezone(UTC) <= timedelta(seconds=2), "and not a second before"


def waiting_for(seconds: int) -> Attempt:
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.waiting", "{}", "{}", 0), seconds)
    return attempt


MESSAGE = "The gateway answered 502 for charge ch_7"


def failed() -> Attempt:
    attempt = claimed()
    assert doubt(attempt, "GatewayUnanswered", ValueError(MESSAGE))
    return attempt


def test_the_message_of_an_exception_is_content_as_in_the_admin() -> None:
    attempt = failed()
    text = said("idempotency_inspect", str(id_of(attempt)))
    assert "GatewayUnanswered" in text
    assert "The message of the exception is shown with --body." in text
    assert MESSAGE not in text
    assert MESSAGE in said("idempotency_inspect", str(id_of(attempt)), "--body")


def test_programs_read_the_details_of_an_event() -> None:
    attempt = failed()
    plain = json.loads(said("idempotency_inspect", str(id_of(attempt)), "--json"))["events"][0]["details"]
    whole = json.loads(said("idempotency_inspect", str(id_of(attempt)), "--json", "--body"))["events"][0]["details"]
    assert whole == {**plain, "message": MESSAGE}
    assert "message" not in plain


def test_the_story_has_the_notes_of_the_page() -> None:
    assert re.search(r"after \d.* of a 5 min lease", said("idempotency_inspect", str(id_of(completed()))))
