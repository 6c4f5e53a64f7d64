"""From a lost attempt to a settled key: the sweeper, a reconciler, a webhook, an operator, the reaper."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F

from django_idempotency import Status, maintenance
from django_idempotency.flow import claim
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import finish
from django_idempotency.models import IdempotencyEvent, IdempotencyKey, MaintenanceRun
from django_idempotency.reconciliation import Inconclusive, Landed, NotLanded, Outcome, reconciler, resolve, try_again
from testproject.payments.models import LedgerEntry
from tests.kit.records import CREATED, OPERATION, book, claimed, doubtful, status_of

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

LONG_AGO = timedelta(days=3650)


@pytest.fixture
def answers(registrations: None) -> Callable[[Any], None]:
    """What the reconciler of these tests will answer."""
    given: list[Any] = []

    def ask(record: IdempotencyKey) -> Any:
        assert record.operation == OPERATION
        said = given[0]
        if isinstance(said, Exception):
            raise said
        return said

    reconciler(OPERATION)(ask)
    return given.append


def test_the_sweeper_makes_a_lost_attempt_unknown_and_leaves_a_living_one() -> None:
    lost, living = claimed(), claimed()
    IdempotencyKey.objects.filter(id=lost.call.id).update(locked_until=F("created_at") - timedelta(seconds=1))

    assert maintenance.sweep() == {"unknown": 1}

    assert (status_of(lost), status_of(living)) == ("unknown", "in_progress")
    assert IdempotencyEvent.objects.get().transition == "T6"
    assert json.loads(MaintenanceRun.objects.get(job="sweep").counts) == {"unknown": 1}


def test_a_landed_verdict_writes_and_completes_together(answers: Callable[[Any], None]) -> None:
    attempt = doubtful()
    answers(Landed(write=book))

    assert maintenance.reconcile() == {"landed": 1}

    assert status_of(attempt) == "completed"
    assert LedgerEntry.objects.count() == 1
    again = claim.begin(attempt.call)
    assert getattr(again, "reply", None) == CREATED
    assert maintenance.reconcile() == {}


def test_not_executed_gives_the_key_back_once_grace_had_passed(answers: Callable[[Any], None]) -> None:
    early, late = doubtful(grace_over=False), doubtful()
    answers(NotLanded())

    assert maintenance.reconcile() == {"not_executed": 1, "postponed": 1}

    assert (status_of(early), status_of(late)) == ("unknown", "failed_retryable")
    assert IdempotencyKey.objects.get(id=early.call.id).reconcile_attempts == 0
    assert isinstance(claim.begin(late.call), Attempt)


@pytest.mark.parametrize("said", [Inconclusive(), RuntimeError("no route to provider"), "nonsense"], ids=repr)
def test_what_says_nothing_is_asked_again_and_ends_as_a_dead_letter(
    answers: Callable[[Any], None], said: Any, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"RECONCILE_TRIES": 2}
    attempt = doubtful()
    answers(said)

    assert maintenance.reconcile() == {"inconclusive": 1}
    assert status_of(attempt) == "unknown"
    assert maintenance.reconcile() == {}, "backed off"
    IdempotencyKey.objects.update(reconcile_after=F("created_at"))
    assert maintenance.reconcile() == {"dead_letter": 1}
    assert status_of(attempt) == "dead_letter"

    assert try_again(attempt.call.id, by="ops", reason="the provider is back") is Outcome.ASKED
    assert status_of(attempt) == "unknown"


def test_a_write_that_fails_leaves_the_doubt(answers: Callable[[Any], None]) -> None:
    attempt = doubtful()

    def write() -> Any:
        book()
        raise RuntimeError("planned")

    answers(Landed(write=write))
    assert maintenance.reconcile() == {"inconclusive": 1}
    assert status_of(attempt) == "unknown"
    assert LedgerEntry.objects.count() == 0


def test_a_verdict_about_another_attempt_does_nothing(answers: Callable[[Any], None]) -> None:
    attempt = doubtful()

    def write() -> Any:
        IdempotencyKey.objects.filter(id=attempt.call.id).update(attempt_token=uuid4())
        return book()

    answers(Landed(write=write))
    assert maintenance.reconcile() == {"overtaken": 1}
    assert status_of(attempt) == "unknown"
    assert LedgerEntry.objects.count() == 0


def test_without_a_reconciler_a_doubt_waits_visibly() -> None:
    attempt = doubtful()
    assert maintenance.reconcile() == {"postponed": 1}
    assert list(IdempotencyKey.objects.filter(status__in=Status.IN_DOUBT)) == [
        IdempotencyKey.objects.get(id=attempt.call.id)
    ]


@pytest.mark.parametrize("reference", ["id", "derived", "pair"])
def test_a_webhook_settles_a_doubt(reference: str) -> None:
    attempt = doubtful()
    call = attempt.call
    named: Any = {"id": call.id, "derived": attempt.derive("charge"), "pair": (call.scope, call.key)}[reference]

    assert resolve(named, Landed(write=book), by="gateway") is Outcome.LANDED
    assert resolve(named, Landed(write=book), by="gateway") is Outcome.OVERTAKEN
    assert (status_of(attempt), LedgerEntry.objects.count()) == ("completed", 1)


def test_a_webhook_for_a_running_attempt_is_to_be_delivered_again() -> None:
    attempt = claimed()
    assert resolve(attempt.call.id, Landed(write=book), by="gateway") is Outcome.RUNNING
    finish(attempt, lambda: (None, CREATED))
    assert LedgerEntry.objects.count() == 0


def test_a_webhooks_denial_only_asks_at_once() -> None:
    attempt = doubtful()
    assert resolve(attempt.call.id, NotLanded(), by="gateway") is Outcome.ASKED
    assert status_of(attempt) == "unknown"


def test_an_operator_gives_a_reason_and_waits_for_grace() -> None:
    early, late = doubtful(grace_over=False), doubtful()
    with pytest.raises(ValueError, match="reason"):
        resolve(late.call.id, NotLanded(), by="ops", operator=True)
    assert resolve(early.call.id, NotLanded(), by="ops", reason="r", operator=True) is Outcome.POSTPONED
    assert resolve(late.call.id, NotLanded(), by="ops", reason="r", operator=True) is Outcome.NOT_EXECUTED
    event = IdempotencyEvent.objects.get(transition="T14")
    assert (event.actor, event.reason, event.record_id) == ("ops", "r", late.call.id)


@pytest.mark.parametrize("reference", ["nonsense", str(uuid4()), f"{uuid4()}x"])
def test_an_unknown_reference_is_absent(reference: str) -> None:
    assert resolve(reference, NotLanded(), by="gateway") is Outcome.ABSENT
    assert try_again(reference, by="ops", reason="r") is Outcome.ABSENT


def test_batches_end_and_a_dry_run_changes_nothing() -> None:
    for _ in range(5):
        finish(claimed(), lambda: (None, CREATED))
    IdempotencyKey.objects.update(expires_at=F("created_at") - LONG_AGO)
    dry = StringIO()
    call_command("idempotency_reap", "--dry-run", "--json", stdout=dry)
    assert json.loads(dry.getvalue()) == {"due": 5}
    said = StringIO()
    call_command("idempotency_reap", "--batch-size=2", "--json", stdout=said)
    assert json.loads(said.getvalue())["deleted"] == 5
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize("job", ["sweep", "reconcile", "resume", "reap"])
def test_a_command_says_what_it_did(job: str) -> None:
    said = StringIO()
    call_command(f"idempotency_{job}", stdout=said)
    assert said.getvalue().strip() in ("nothing to do", "0 deleted")


def test_the_resolve_command() -> None:
    attempt = doubtful()
    arguments = ["idempotency_resolve", str(attempt.call.id), "--by=ops", "--reason=seen in the provider's console"]
    said = StringIO()
    call_command(*arguments, "--landed=201", "--body=", "--dry-run", stdout=said)
    call_command(*arguments, "--landed=201", '--body={"id": 7}', "--json", stdout=said)
    dry, done = said.getvalue().splitlines()
    assert dry.startswith("Would mark as succeeded and store the response.")
    assert done == (f'{{"outcome": "landed", "id": "{attempt.call.id}", "status": "completed"}}')
    assert status_of(attempt) == "completed"
    with pytest.raises(CommandError, match="the record's status is `completed`"):
        call_command(*arguments, "--not-executed", stdout=said)


def test_the_resolve_command_says_that_it_writes_nothing_else() -> None:
    said = StringIO()
    arguments = ["--by=ops", "--reason=seen in the provider's console", "--landed=201", "--body="]
    call_command("idempotency_resolve", str(doubtful().call.id), *arguments, stdout=said)
    assert "No domain writes were made" in said.getvalue()


@pytest.mark.parametrize(
    ("status", "stored"), [("199", False), ("200", True), ("599", True), ("600", False), ("2x", False)]
)
def test_the_resolve_command_stores_only_what_can_be_answered(status: str, stored: bool) -> None:
    attempt = doubtful()
    arguments = [
        "idempotency_resolve",
        str(attempt.call.id),
        "--by=ops",
        "--reason=seen",
        f"--landed={status}",
        "--body=",
    ]
    rejected = pytest.raises(CommandError, match=f"'{status}' is not a response status.* 200 to 599")
    with nullcontext() if stored else rejected:
        call_command(*arguments, stdout=StringIO())
    assert status_of(attempt) == ("completed" if stored else "unknown")


def test_the_resolve_command_stores_no_body_where_there_is_none() -> None:
    attempt = doubtful()
    arguments = ["idempotency_resolve", str(attempt.call.id), "--by=ops", "--reason=seen", "--landed=204", "--body=x"]
    with pytest.raises(CommandError, match="--body: A response with this status has no body"):
        call_command(*arguments, stdout=StringIO())
    assert status_of(attempt) == "unknown"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--body={nojson", "--body: The content type is JSON"),
        ("--content-type=text/plain\nX-A: b", "--content-type: Enter a content type of printable ASCII"),
        ("--reason= ", "must not be empty"),
        ("--by=", "must not be empty"),
    ],
)
def test_the_resolve_command_refuses_what_the_admin_refuses(option: str, said: str) -> None:
    attempt = doubtful()
    known = ["idempotency_resolve", str(attempt.call.id)]
    arguments = [*known, "--by=ops", "--reason=seen", "--landed=201", "--body={}", option]
    with pytest.raises(CommandError, match=said):
        call_command(*arguments, stdout=StringIO())
    assert status_of(attempt) == "unknown"


def test_one_operation_has_one_reconciler(answers: Callable[[Any], None]) -> None:
    with pytest.raises(ValueError, match=OPERATION):
        reconciler(OPERATION)(lambda record: NotLanded())
