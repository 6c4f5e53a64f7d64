"""`idempotency_resolve` and `idempotency_reconcile REF`: what the admin's six actions do, and why one was refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db.models import F

from django_idempotency.console.actions import ACTIONS
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import Inconclusive, reconciler
from django_idempotency.store import attempts
from django_idempotency.store.operations import StoredOperation
from tests.kit.records import change, claimed, completed, dead_letter, doubtful, events, id_of, status_of
from tests.kit.registrations import temporary_registrations
from tests.management.terminals import Terminal, said

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

WHO = ("--by=ada", "--reason=seen")


def resolve(known: Any, *how: str) -> str:
    return said("idempotency_resolve", str(id_of(known)), *how, *WHO)


def test_an_empty_body_has_to_be_meant() -> None:
    attempt = doubtful()
    with pytest.raises(CommandError, match=r"--body '' if it has none"):
        resolve(attempt, "--landed=201")
    assert status_of(attempt) == "unknown"
    resolve(attempt, "--landed=201", "--body=")
    assert status_of(attempt) == "completed"


def test_a_status_without_a_body_needs_none() -> None:
    attempt = doubtful()
    resolve(attempt, "--landed=204")
    assert status_of(attempt) == "completed"


def waiting() -> Any:
    attempt = claimed()
    assert attempts.hand_over(attempt.ref, attempt.token, StoredOperation("tests.waiting", "{}", "{}", 0), 60)
    return attempt


def test_every_action_of_the_admin_has_its_command() -> None:
    parser = load_command_class("django_idempotency", "idempotency_resolve").create_parser("manage.py", "resolve")
    options = {option for action in parser._actions for option in action.option_strings}
    assert [action.name for action in ACTIONS if action.option not in options] == ["ask-reconciler"]


@pytest.mark.parametrize(
    ("make", "option", "would"),
    [
        (doubtful, "--landed=204", "Would mark as succeeded .* The response is 204 without a body.$"),
        (doubtful, "--not-executed", r"Would mark as not executed .* The grace period ended 1 h ago\.$"),
        (dead_letter, "--try-again", "Would reset and retry reconciliation"),
        (completed, "--expire", "Would expire now. The stored response is not replayed any more"),
    ],
)
def test_a_dry_run_says_what_would_happen_and_changes_nothing(make: Any, option: str, would: str) -> None:
    attempt = make()
    before = IdempotencyKey.objects.values().get(), IdempotencyEvent.objects.count()
    text = resolve(attempt, option, "--dry-run")
    assert re.match(would, text), text
    assert (IdempotencyKey.objects.values().get(), IdempotencyEvent.objects.count()) == before
    assert resolve(attempt, option), "and then it does happen"


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["for real", "dry run"])
@pytest.mark.parametrize(
    ("make", "option", "message"),
    [
        (doubtful, "--try-again", "status is `unknown`, and --try-again needs `dead_letter`. Possible now: .*--landed"),
        (completed, "--not-executed", "status is `completed`, and --not-executed needs `dead_letter` or `unknown`"),
        (claimed, "--landed=204", "status is `in_progress`, and --landed needs .*Possible now: nothing by hand"),
        (doubtful, "--enqueue", "--enqueue needs `pending`"),
        (doubtful, "--expire", "--expire needs `completed` or `failed`"),
        (waiting, "--enqueue", "the last message may still be in flight. Another one can be sent in 1 min"),
    ],
)
def test_a_refusal_says_what_was_found_and_what_is_possible(
    make: Any, option: str, message: str, dry_run: list[str]
) -> None:
    attempt = make()
    before = IdempotencyKey.objects.values().get()
    with pytest.raises(CommandError, match=message):
        resolve(attempt, option, *dry_run)
    assert IdempotencyKey.objects.values().get() == before


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["for real", "dry run"])
def test_grace_that_has_not_passed_is_named(dry_run: list[str]) -> None:
    attempt = doubtful(grace_over=False)
    with pytest.raises(CommandError, match=r"the grace period ends in \d+ min.*a late effect of the attempt may still"):
        resolve(attempt, "--not-executed", *dry_run)
    assert status_of(attempt) == "unknown"


def test_the_key_of_a_step_that_is_not_in_doubt_settles_nothing() -> None:
    attempt = doubtful()
    steps = '{"version":1,"steps":[["reserve","done",1],["charge","started",null]]}'
    change(attempt, run_name="tests.ride", progress=steps, steps_done=2)
    with pytest.raises(CommandError, match="of a step that is not in doubt; the step 'charge' is"):
        said("idempotency_resolve", attempt.derive("reserve"), "--not-executed", *WHO)
    how = ("--not-executed", *WHO, "--dry-run")
    text = said("idempotency_resolve", attempt.derive("charge"), *how)
    assert text.endswith("Steps: 1 done, 1 in doubt: charge.")


def test_programs_read_the_refusal_too() -> None:
    output = StringIO()
    with pytest.raises(CommandError):
        call_command("idempotency_resolve", str(id_of(doubtful())), "--try-again", *WHO, "--json", stdout=output)
    error = json.loads(output.getvalue())["error"]
    assert (error["code"], error["status"]) == ("overtaken", "unknown")
    assert "--landed" in error["allowed"]
    assert error["message"].startswith("Nothing was changed")


def test_work_is_sent_again_once_its_message_is_late() -> None:
    attempt = waiting()
    change(attempt, locked_until=F("created_at") - timedelta(seconds=1))
    assert "a message was sent" in resolve(attempt, "--enqueue")


def test_a_person_is_asked_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, terminal = doubtful(), Terminal()
    arguments = ("idempotency_resolve", str(id_of(attempt)), "--landed=201", "--body=", *WHO)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: "no")
    with pytest.raises(CommandError, match="Nothing was changed"):
        call_command(*arguments, stdout=terminal, no_color=True)
    shown = terminal.getvalue()
    assert "Would mark as succeeded and store the response" in shown
    assert "makes no domain writes" in shown
    assert status_of(attempt) == "unknown"
    monkeypatch.setattr("builtins.input", lambda question: pytest.fail("asked"))
    call_command(*arguments, "--noinput", stdout=terminal)
    assert status_of(attempt) == "completed"


@pytest.fixture
def _undecided() -> Iterator[None]:
    """A provider that cannot tell."""
    with temporary_registrations():
        reconciler("tests.asked")(lambda record: Inconclusive(reason="timeout"))
        yield


@pytest.mark.usefixtures("_undecided")
def test_one_record_is_asked_about_before_it_is_due() -> None:
    attempt = doubtful("tests.asked")
    change(attempt, reconcile_after=F("created_at") + timedelta(hours=1))
    text = said("idempotency_reconcile", str(id_of(attempt)), "--dry-run")
    assert text.startswith("Would ask the reconciler now.")
    assert text.endswith("Try 1 of 10.")
    text = said("idempotency_reconcile", str(id_of(attempt)), "--by=ada", "--reason=the customer calls")
    assert text == "The reconciler could not tell; it asks again later."
    assert ("", "the customer calls") in events(attempt)
    assert IdempotencyEvent.objects.get(kind="asked").actor == "ada"


@pytest.mark.parametrize("option", ["--by=ada", "--reason=why", "--scope=s"])
def test_what_is_about_one_record_does_not_start_the_whole_job(option: str) -> None:
    doubtful()
    with pytest.raises(CommandError, match="need REF"):
        said("idempotency_reconcile", option)


def test_a_person_is_not_told_that_grace_is_over_before_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, terminal = doubtful(grace_over=False), Terminal()
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: "no")
    with pytest.raises(CommandError):
        call_command("idempotency_resolve", str(id_of(attempt)), "--not-executed", *WHO, stdout=terminal, no_color=True)
    assert "The grace period ends in" in terminal.getvalue()
    assert "This will be refused" in terminal.getvalue()


@pytest.mark.usefixtures("_undecided")
def test_who_asks_is_the_user_of_the_system_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    said("idempotency_reconcile", str(id_of(doubtful("tests.asked"))))
    assert IdempotencyEvent.objects.get(kind="asked").actor == "grace"


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["for real", "dry run"])
@pytest.mark.parametrize(("make", "message"), [(doubtful, "no reconciler is"), (completed, "status is `completed`")])
def test_where_there_is_nobody_to_ask_nothing_is_written(make: Any, message: str, dry_run: list[str]) -> None:
    attempt = make()
    before = IdempotencyKey.objects.values().get(), IdempotencyEvent.objects.count()
    with pytest.raises(CommandError, match=message):
        said("idempotency_reconcile", str(id_of(attempt)), *dry_run)
    assert (IdempotencyKey.objects.values().get(), IdempotencyEvent.objects.count()) == before
