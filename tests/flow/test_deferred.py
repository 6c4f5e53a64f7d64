"""Work that was handed over is done once, whatever becomes of its messages and its workers."""

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.db.models import F, Value
from django.test.utils import CaptureQueriesContext

from django_idempotency import Reply, json_reply, maintenance, signals
from django_idempotency.core.decisions import Accepted, InDoubt, Replay
from django_idempotency.core.progress import Progress
from django_idempotency.exceptions import (
    AlreadyFinished,
    EndedWithoutResult,
    InvalidKey,
    KeyExpired,
    KeyReused,
    LostFence,
    StoreUnavailable,
    UnknownOperation,
)
from django_idempotency.fields import StatementNow
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin
from django_idempotency.flow.deferred import defer
from django_idempotency.flow.resolve import try_again
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.operations import Op, enqueue, operation, perform
from django_idempotency.reconciliation import NotLanded, StepLanded, resolve
from django_idempotency.store.records import read_effect
from testproject.payments.models import LedgerEntry
from tests.flow.test_doubtful_steps import careful
from tests.kit.calls import heard
from tests.kit.databases import elsewhere, nobody_answers
from tests.kit.exports import MESSAGES, STEPS, asking, export, failing, note, unlucky
from tests.kit.rides import WORLD, Killed, a_call, book, claimed, lease_over
from tests.kit.threads import at_once, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("world"), pytest.mark.vendor]
AGO = timedelta(seconds=1)
PAST_ANY_ROUNDING = timedelta(milliseconds=100)


def broken(record: str) -> None:
    raise ConnectionError("no broker")


def test_a_message_that_cannot_be_sent_is_no_success_of_the_sweeper(settings: Any) -> None:
    deferred()
    all_due()
    settings.IDEMPOTENCY = {"ENQUEUE": broken}
    assert maintenance.sweep() == {"failed": 1}


def deferred(function: Any = export, **arguments: Any) -> Attempt:
    attempt = claimed(str(uuid4()))
    defer(attempt, function, arguments or ({"title": "may"} if function is export else {}))
    return attempt


def record() -> IdempotencyKey:
    return IdempotencyKey.objects.with_time().get()


def booked() -> list[str]:
    return list(LedgerEntry.objects.order_by("id").values_list("reference", flat=True))


def all_due() -> None:
    IdempotencyKey.objects.filter(locked_until__isnull=False).update(locked_until=F("created_at") - AGO)
    IdempotencyKey.objects.filter(reconcile_after__isnull=False).update(reconcile_after=F("created_at") - AGO)


def killed_after(step: str) -> str:
    """A worker took the message and is gone."""
    message = str(deferred().call.id)
    WORLD.kill_at = f"after {step}"
    with pytest.raises(Killed):
        perform(message)
    return message


def test_a_message_is_enough_for_a_worker() -> None:
    attempt = deferred()
    assert [str(attempt.call.id)] == MESSAGES
    assert (record().status, booked()) == ("pending", [])

    assert perform(MESSAGES[0]) == "landed"

    assert (record().status, record().response_status, booked()) == ("completed", 201, STEPS)
    assert record().recovery_point == "row_3"
    assert isinstance(begin(attempt.call), Replay)


def test_the_same_key_is_accepted_until_it_is_done() -> None:
    attempt = deferred()
    assert isinstance(begin(attempt.call), Accepted)


def test_the_views_writes_and_the_work_are_one_transaction() -> None:
    attempt = claimed(str(uuid4()))
    defer(attempt, export, {"title": "may"}, note)
    perform(MESSAGES[0])
    entry = LedgerEntry.objects.get(reference="asked for")
    assert bytes(record().response_body or b"") == b'{"title": "may", "entry": %d}' % entry.pk


def test_a_lost_fence_takes_the_writes_and_the_message_back() -> None:
    attempt = claimed(str(uuid4()))
    lease_over()
    maintenance.sweep()
    with pytest.raises(LostFence):
        defer(attempt, export, {"title": "may"}, note)
    assert (MESSAGES, booked(), record().status) == ([], [], "unknown")


def test_an_attempt_ends_once() -> None:
    attempt = deferred()
    with pytest.raises(AlreadyFinished):
        defer(attempt, export, {"title": "may"})


@pytest.mark.parametrize("arguments", [{}, {"title": "may", "colour": "red"}, {"title": object()}])
def test_arguments_that_do_not_fit_are_an_error_in_the_view(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        defer(claimed(str(uuid4())), export, arguments)
    assert (MESSAGES, record().status) == ([], "in_progress")


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(UnknownOperation, match="decorate it"):
        defer(claimed(str(uuid4())), note, {})  # type: ignore[arg-type]


def test_a_database_that_is_away_is_told_to_the_worker_and_costs_nothing() -> None:
    message = str(deferred().call.id)
    with nobody_answers(), pytest.raises(StoreUnavailable):
        perform(message)
    assert record().status == "pending"
    assert perform(message) == "landed"


@pytest.mark.usefixtures("registrations")
def test_a_database_that_goes_away_does_not_hide_why_an_operation_failed(caplog: pytest.LogCaptureFixture) -> None:
    away = ExitStack()

    @operation("tests.leaving")
    def leaving(op: Op) -> Reply:
        away.enter_context(nobody_answers())
        raise RuntimeError("no disk")

    attempt = deferred(leaving)
    with away:
        assert perform(attempt.call.id) == "inconclusive"
    assert "no disk" in caplog.text
    assert record().status == "in_progress", "until its lease expires"


@pytest.mark.parametrize("message", ["", "no id", str(UUID(int=0)), str(uuid4()), "x" * 5000])
def test_a_wrong_id_is_dropped(message: str) -> None:
    deferred()
    assert perform(message) == "absent"
    assert record().status == "pending"


def test_a_worker_ignores_a_record_that_was_not_deferred() -> None:
    attempt = claimed(str(uuid4()))
    assert perform(attempt.call.id) == "absent"
    assert record().status == "in_progress"


def test_a_message_that_comes_twice_is_dropped() -> None:
    deferred()
    assert [perform(MESSAGES[0]) for _ in range(3)] == ["landed", "overtaken", "overtaken"]
    assert booked() == STEPS


def test_of_many_workers_with_one_message_one_runs(vendor: str) -> None:
    message = str(deferred().call.id)

    def work() -> str:
        try:
            return perform(message)
        finally:
            connection.close()

    outcomes = at_once([work] * 8)
    assert sorted(outcomes) == ["landed"] + ["overtaken"] * 7
    assert booked() == STEPS


def test_a_message_that_overtakes_its_commit_finds_nothing_and_another_is_sent() -> None:
    with transaction.atomic():
        reference = enqueue("tests", "a key", export, title="may")
        assert elsewhere(lambda: perform(reference)) == "absent"
        assert MESSAGES == []
    assert [reference] == MESSAGES
    assert perform(reference) == "landed"


def test_a_broker_that_is_down_is_harmless(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.IDEMPOTENCY = {"ENQUEUE": "tests.kit.exports.broker_is_down"}
    deferred()
    assert "the sweeper sends it again" in caplog.text
    assert record().status == "pending"


def test_a_message_that_was_lost_is_sent_again() -> None:
    message = str(deferred().call.id)
    MESSAGES.clear()  # the broker forgot them
    assert maintenance.sweep() == {}, "it may still be on its way"
    all_due()
    assert maintenance.sweep() == {"enqueued": 1}
    assert [message] == MESSAGES
    assert maintenance.sweep() == {}
    assert perform(message) == "landed"


@pytest.mark.slow
def test_a_broker_so_slow_that_messages_are_due_again_gets_each_once_in_a_run(settings: Any) -> None:
    for _ in range(4):
        deferred()
    all_due()
    sent: list[str] = []

    def slowly(message: str) -> None:
        sent.append(message)
        if len(sent) == 2:
            due = IdempotencyKey.objects.filter(id=sent[0], locked_until__lte=StatementNow() - Value(PAST_ANY_ROUNDING))
            wait_until(due.exists)

    settings.IDEMPOTENCY = {"ENQUEUE": slowly, "PICK_UP": 1}
    assert maintenance.sweep(maintenance.Bounds(batch_size=2)) == {"enqueued": 4}
    assert len(set(sent)) == 4


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_is_killed_is_replaced(step: str) -> None:
    message = killed_after(step)
    assert record().status == "in_progress"
    assert perform(message) == "overtaken", "its lease is live"
    MESSAGES.clear()

    all_due()
    assert maintenance.sweep() == {"unknown": 1}
    assert maintenance.reconcile() == {}, "nobody is asked"
    assert maintenance.resume() == {"sent": 1}
    assert maintenance.resume() == {}, "told once"
    assert [message] == MESSAGES
    assert (record().status, booked()) == ("unknown", STEPS[: STEPS.index(step) + 1]), "long work is not done there"

    assert perform(message) == "landed"
    assert (record().status, booked()) == ("completed", STEPS)
    assert [event.transition for event in IdempotencyEvent.objects.order_by("id")] == ["T6", "T7"]


def test_a_redelivered_message_takes_over_when_the_lease_is_over() -> None:
    message = killed_after("row_1")
    all_due()
    assert perform(message) == "landed"
    assert booked() == STEPS


def test_what_fails_backs_off_and_ends_as_a_dead_letter(settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ATTEMPTS": 2, "ATTEMPTS_SPAN": 0}
    message = str(deferred(failing).call.id)

    assert perform(message) == "inconclusive"
    assert (record().status, record().last_error_code) == ("unknown", "RuntimeError")
    assert maintenance.resume() == {}, "backed off"
    assert perform(message) == "inconclusive"
    assert perform(message) == "dead_letter"
    assert perform(message) == "overtaken"
    assert (record().status, booked()) == ("dead_letter", ["booked"])


def test_what_fails_over_another_keys_doubt_backs_off_too() -> None:
    """The doubt is not about this record, which nobody works at any more."""
    message = str(deferred(asking).call.id)
    assert perform(message) == "inconclusive"
    assert (record().status, record().last_error_code) == ("unknown", "OutcomeUnknown")
    assert maintenance.resume() == {}, "backed off"


def test_what_proves_that_nothing_happened_waits_for_another_try(settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ATTEMPTS": 3, "ATTEMPTS_SPAN": 0}
    message = str(deferred(unlucky).call.id)
    assert [perform(message), perform(message)] == ["not_executed", "not_executed"]
    assert (record().status, record().attempts) == ("pending", 3)
    assert maintenance.sweep() == {}, "each time longer"

    assert perform(message) == "inconclusive", "at the cap it is as any other failure"
    assert record().status == "unknown"
    assert perform(message) == "dead_letter"
    assert WORLD.sent == ["tried"] * 3


@pytest.mark.parametrize(("name", "version"), [("tests.of_another_release", 1), ("tests.export", 2)])
def test_what_this_code_does_not_know_is_left_to_another_worker(name: str, version: int) -> None:
    message = str(deferred().call.id)
    IdempotencyKey.objects.update(run_name=name, progress=Progress(version).dump())
    all_due()
    assert perform(message) == "postponed"
    assert record().status == "pending"
    assert maintenance.sweep() == {}, "it is not sent to workers like this one again and again"


def test_without_messages_a_worker_comes_by_itself(settings: Any) -> None:
    settings.IDEMPOTENCY = {"ENQUEUE": None}
    deferred()
    assert maintenance.work(maintenance.Bounds(dry_run=True)) == {"due": 1}
    assert maintenance.sweep() == {}, "what waits is not the sweeper's"
    assert maintenance.work() == {"landed": 1}
    assert maintenance.work() == {}
    assert booked() == STEPS


def test_without_messages_a_killed_worker_is_replaced(settings: Any) -> None:
    settings.IDEMPOTENCY = {"ENQUEUE": None}
    killed_after("row_2")
    all_due()
    assert maintenance.work() == {}, "the sweeper says that it is lost"
    maintenance.sweep()
    assert maintenance.resume() == {}
    assert maintenance.work() == {"landed": 1}
    assert booked() == STEPS


def test_work_that_no_worker_took_ends_as_a_failure() -> None:
    attempt = deferred()
    IdempotencyKey.objects.update(expires_at=F("created_at") - AGO)
    assert maintenance.reap()["abandoned"] == 1
    assert (record().status, record().response_status) == ("failed", 408)
    assert perform(attempt.call.id) == "overtaken"


@pytest.mark.parametrize("trace", ["tainted", "derived", "wrote", "steps_done"])
def test_work_that_may_have_had_a_part_of_its_effect_is_never_abandoned(trace: str) -> None:
    """It waits for a person, and goes on once a worker is there again."""
    attempt = claimed(str(uuid4()))
    if trace == "tainted":
        lease_over()
        again = begin(a_call(attempt.call.key))
        assert isinstance(again, Attempt)
        attempt = again
    attempt.derived = ("charge",) if trace == "derived" else ()
    defer(attempt, export, {"title": "may"}, dict if trace == "wrote" else None)
    if trace == "steps_done":
        IdempotencyKey.objects.update(steps_done=1)
    assert getattr(record(), trace)
    with heard(signals.dead_lettered) as told:
        IdempotencyKey.objects.update(expires_at=F("created_at") - AGO)
        assert maintenance.reap()["dead_letter"] == 1
    assert len(told) == 1
    assert (record().status, record().last_error_code, record().expires_at) == ("dead_letter", "abandoned", None)
    assert IdempotencyEvent.objects.get(kind="dead letter").actor == "reaper"
    assert isinstance(begin(a_call(attempt.call.key)), InDoubt)
    assert try_again(attempt.call.id, by="ops", reason="workers are back") == "asked"
    assert maintenance.resume() == {"sent": 1}


@pytest.mark.parametrize("attempts", [1, 99])
def test_a_step_in_doubt_waits_for_its_verdict_and_the_work_goes_on(attempts: int) -> None:
    message = str(deferred(careful).call.id)
    WORLD.kill_at = "after the charge"
    with pytest.raises(Killed):
        perform(message)
    all_due()
    maintenance.sweep()
    IdempotencyKey.objects.update(attempts=attempts, grace_until=F("created_at") - AGO)
    assert perform(message) == "overtaken", "however often it is told of"
    assert maintenance.resume() == {}

    assert resolve(record().derive("charged"), StepLanded("ch_7"), by="a webhook") == "resumable"
    IdempotencyKey.objects.update(attempts=1)
    assert maintenance.resume() == {"sent": 1}
    assert perform(message) == "landed"
    assert (booked(), len(WORLD.sent)) == (["booked", "receipt"], 1)


def test_work_that_a_person_gave_back_goes_on_when_it_is_deferred_again() -> None:
    attempt = deferred(failing)
    perform(MESSAGES[0])
    IdempotencyKey.objects.update(grace_until=F("created_at") - AGO)
    assert resolve(attempt.call.id, NotLanded(), by="ops", reason="seen", operator=True) == "not_executed"

    again = begin(attempt.call)
    assert isinstance(again, Attempt)
    defer(again, failing, {})
    assert (record().status, record().recovery_point, read_effect(record())) == ("pending", "booked", "possible")
    assert perform(MESSAGES[1]) == "inconclusive"
    assert booked() == ["booked"], "the step that was done is not done again"


@operation("tests.mended")
def mended(op: Op, *, doubtful: bool) -> Reply:
    op.phase("booked", book, "booked")
    if doubtful:
        op.effect("charged", WORLD.charge, in_doubt="repeat")
    elif not WORLD.sent:
        raise RuntimeError
    return json_reply(201, {})


def tried_too_often(settings: Any, **arguments: Any) -> str:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ATTEMPTS": 2, "ATTEMPTS_SPAN": 0}
    message = enqueue("billing", "invoice-7", mended, **arguments)
    assert [perform(message) for _ in range(3)] == ["inconclusive", "inconclusive", "dead_letter"]
    IdempotencyKey.objects.update(grace_until=F("created_at") - AGO)
    return message


def test_work_that_a_person_gave_back_has_all_its_attempts_and_is_kept_until_it_is_asked_for(settings: Any) -> None:
    message = tried_too_often(settings, doubtful=False)
    assert resolve(message, NotLanded(), by="ops", reason="mended", operator=True) == "not_executed"
    assert (record().status, record().attempts, record().expires_at) == ("failed_retryable", 0, None)
    assert maintenance.reap()["deleted"] == 0, "a new beginning would book a second time"

    assert enqueue("billing", "invoice-7", mended, doubtful=False) == message
    assert perform(message) == "inconclusive", "it may fail again"
    WORLD.sent.append("mended")
    assert perform(message) == "landed"
    assert booked() == ["booked"]


def test_a_step_that_a_person_gave_back_has_all_its_attempts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(WORLD, "charge", None)
        message = tried_too_often(settings, doubtful=True)
    assert resolve(message, NotLanded(), by="ops", reason="never sent", operator=True) == "resumable"
    assert maintenance.resume() == {"sent": 1}
    assert perform(message) == "landed"
    assert (booked(), len(WORLD.sent)) == (["booked"], 1)


def test_without_a_view_the_same_key_is_the_same_work() -> None:
    references = {enqueue("billing", "invoice-7", export, title="may") for _ in range(3)}
    assert [*references] == MESSAGES
    with pytest.raises(KeyReused, match="Do not use a new key") as reused:
        enqueue("billing", "invoice-7", export, title="june")
    assert not reused.value.safe_new_key
    assert perform(MESSAGES[0]) == "landed"
    assert enqueue("billing", "invoice-7", export, title="may") == MESSAGES[0]
    assert (record().status, len(MESSAGES), booked()) == ("completed", 1, STEPS)


def test_the_setting_mode_is_not_about_queued_work(settings: Any) -> None:
    settings.IDEMPOTENCY = {"MODE": "atomic", "ENQUEUE": None}
    assert perform(enqueue("billing", "invoice-7", export, title="may")) == "landed"
    assert (record().status, booked()) == ("completed", STEPS)


def test_without_a_view_the_order_of_arguments_says_nothing() -> None:
    assert enqueue("s", "k", export, title="may", entry=1) == enqueue("s", "k", export, entry=1, title="may")


def test_without_a_view_many_at_once_are_one_work() -> None:
    def ask() -> str:
        try:
            return enqueue("billing", "invoice-7", export, title="may")
        finally:
            connection.close()

    assert len(set(at_once([ask] * 8))) == 1
    assert (len(MESSAGES), record().status) == (1, "pending")


def test_without_a_view_a_rollback_takes_the_work_back() -> None:
    with transaction.atomic():
        enqueue("billing", "invoice-7", export, title="may")
        transaction.set_rollback(True)
    assert (MESSAGES, IdempotencyKey.objects.count()) == ([], 0)


def test_without_a_view_a_key_whose_past_is_over_is_new_work() -> None:
    reference = enqueue("billing", "invoice-7", export, title="may")
    perform(reference)
    IdempotencyKey.objects.update(expires_at=F("created_at") - AGO)
    assert enqueue("billing", "invoice-7", export, title="june") == reference
    assert (MESSAGES, record().status) == ([reference] * 2, "pending")
    assert perform(reference) == "landed"
    assert booked() == STEPS * 2


def test_without_a_view_work_that_will_not_be_done_is_not_accepted(settings: Any) -> None:
    asked = partial(enqueue, "billing", "invoice-7", export, title="may")
    reference = asked()
    perform(reference)
    IdempotencyKey.objects.update(expires_at=F("created_at") - AGO)
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "AFTER_EXPIRY": "gone", "EXPIRY": "soft"}
    with pytest.raises(KeyExpired, match=reference):
        asked()
    assert (MESSAGES, record().status) == ([reference], "completed")


@pytest.mark.parametrize("abandoned", [True, False])
def test_without_a_view_work_that_ended_undone_is_not_accepted(abandoned: bool) -> None:
    asked = partial(enqueue, "billing", "invoice-7", export, title="may")
    reference = asked()
    if abandoned:
        IdempotencyKey.objects.update(expires_at=F("created_at") - AGO)
        assert maintenance.reap()["abandoned"] == 1
    else:  # every attempt was proven to have done nothing
        IdempotencyKey.objects.update(status="failed_retryable", attempts=10, locked_until=None)
    with pytest.raises(EndedWithoutResult, match=reference):
        asked()
    assert [reference] == MESSAGES


def test_without_a_view_a_key_may_be_any_text() -> None:
    references = {enqueue("billing", key, export, title="may") for key in ("Übersicht 7", "k" * 256, "k" * 255)}
    assert len(references) == len(MESSAGES) == IdempotencyKey.objects.count() == 3
    with pytest.raises(InvalidKey, match="empty"):
        enqueue("billing", "", export, title="may")


def ours(queries: CaptureQueriesContext) -> list[str]:
    return [query["sql"] for query in queries if "idempotency_key" in query["sql"]]


def test_the_queries_of_deferred_work() -> None:
    attempt = claimed(str(uuid4()))
    with CaptureQueriesContext(connection) as deferring:
        defer(attempt, export, {"title": "may"})
    with CaptureQueriesContext(connection) as performing:
        perform(attempt.call.id)
    assert len(ours(deferring)) == 1
    steps = 2 * len(STEPS)  # each its marker, and how far it is
    assert len(ours(performing)) == 1 + 1 + steps + 1, "read, pick up, the steps, complete"


@pytest.mark.parametrize(("extent", "said"), [((3, 10), (3, 10)), (None, None)])
def test_how_far_it_is_survives_the_next_step(extent: tuple[int, int] | None, said: object) -> None:
    progress = Progress() if extent is None else Progress().report(*extent)
    assert Progress.load(progress.mark_done("booked", 1).dump()).extent == said
