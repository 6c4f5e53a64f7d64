"""How an attempt ends that has an answer."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from time import sleep

import pytest
from django.db import IntegrityError, OperationalError, transaction

from django_idempotency import Reply, Status, signals
from django_idempotency.core.decisions import Replay
from django_idempotency.exceptions import (
    AlreadyFinished,
    InsideTransaction,
    LostFence,
    OutcomeUnknown,
    StoreUnavailable,
)
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from testproject.payments.models import LedgerEntry
from tests.kit.calls import BOOKED, REFUSED, Booking, a_call, bookings, claimed, heard, refused
from tests.kit.databases import elsewhere, in_transaction
from tests.kit.records import age, change, events, row_of, status_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

MODES = ["leased", "atomic"]


def test_the_booking_and_the_answer_are_there_together() -> None:
    call = a_call()
    attempt = claimed(call)
    work = Booking(call)
    assert finish(attempt, work) == "booked"
    row = row_of(call)
    assert attempt.finished
    assert (row.status, row.response_status, bookings(call)) == (Status.COMPLETED, 201, 1)
    assert (row.locked_until, row.reconcile_after) == (None, None)
    assert row.expires_at is not None


def test_work_runs_in_the_transaction_of_the_completion() -> None:
    call = a_call()
    seen: list[tuple[bool, int]] = []

    def work() -> tuple[None, Reply]:
        LedgerEntry.objects.create(reference=call.key, account="cash", amount=5)
        elsewhere(lambda: seen.append((in_transaction(), LedgerEntry.objects.filter(reference=call.key).count())))
        return None, BOOKED

    finish(claimed(call), work)
    assert seen == [(False, 0)]


@pytest.mark.parametrize("mode", MODES)
def test_hooks_run_once_and_after_the_commit(mode: str) -> None:
    call = a_call(mode=mode)
    seen: list[tuple[str, str, int]] = []

    def look() -> None:
        elsewhere(lambda: seen.append(("hook", row_of(call).status, bookings(call))))

    def work(attempt: object) -> tuple[str, Reply]:
        transaction.on_commit(look)
        return Booking(call)()

    run_call(call, work)
    run_call(call, work)
    assert seen == [("hook", Status.COMPLETED, 1)]


@pytest.mark.parametrize("mode", MODES)
def test_hooks_have_the_time_they_need(mode: str) -> None:
    call = a_call(mode=mode, claim_limit=timedelta(milliseconds=500))
    seen: list[str] = []

    def work(attempt: object) -> tuple[str, Reply]:
        transaction.on_commit(partial(sleep, 0.7))  # longer than the completion may take
        transaction.on_commit(lambda: seen.append(row_of(call).status))
        return Booking(call)()

    run_call(call, work)
    assert seen == [Status.COMPLETED]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [RuntimeError("planned"), OperationalError(1213, "a deadlock, of its own")])
def test_a_hook_that_fails_does_not_take_the_answer_back(
    mode: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    call = a_call(mode=mode)
    book = Booking(call)

    def fails() -> None:
        raise error

    def work(attempt: object = None) -> tuple[str, Reply]:
        transaction.on_commit(fails)
        return book()

    first = run_call(call, work) if mode == "atomic" else finish(claimed(call), work, rerun=True)
    assert (first, book.runs, bookings(call)) == ("booked", 1, 1)
    assert isinstance(run_call(call, work), Replay)
    assert "An on_commit hook failed" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_hooks_of_an_attempt_that_failed_do_not_run(mode: str) -> None:
    call = a_call(mode=mode)
    ran: list[str] = []

    def work(attempt: object) -> tuple[str, Reply]:
        transaction.on_commit(lambda: ran.append("hook"))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_call(call, work)
    assert ran == []


@pytest.mark.parametrize("mode", MODES)
def test_completed_is_announced_after_the_commit(mode: str) -> None:
    call = a_call(mode=mode)
    seen: list[tuple[str, int]] = []

    def look() -> None:
        elsewhere(lambda: seen.append((row_of(call).status, bookings(call))))

    with heard(signals.completed, look) as completed:
        run_call(call, Booking(call))
    assert seen == [(Status.COMPLETED, 1)]
    assert [(each["call"], each["reply"], each["using"]) for each in completed] == [(call, BOOKED, "default")]


@pytest.mark.parametrize("mode", MODES)
def test_a_receiver_that_raises_changes_nothing(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    call = a_call(mode=mode)

    def explode() -> None:
        raise RuntimeError("metrics are down")

    with heard(signals.completed, explode):
        assert run_call(call, Booking(call)) == "booked"
    assert status_of(call) is Status.COMPLETED
    assert "metrics are down" in caplog.text


def test_an_answer_that_comes_late_still_counts_while_nobody_has_judged() -> None:
    call = a_call()
    attempt = claimed(call)
    age(call, "locked_until")
    refused(call)
    assert status_of(call) is Status.UNKNOWN
    assert finish(attempt, Booking(call)) == "booked"
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


@pytest.mark.parametrize("reply", [BOOKED, REFUSED], ids=["success", "refusal"])
def test_a_lost_fence_rolls_the_writes_back_loudly(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    call = a_call(on_lost_lease="restart")
    slow = claimed(call)
    age(call, "locked_until")
    quick = claimed(call)
    with heard(signals.fence_lost) as lost, pytest.raises(LostFence):
        finish(slow, Booking(call, reply=reply))
    assert bookings(call) == 0
    assert [each["call"] for each in lost] == [call]
    assert "lost its lease" in caplog.text
    assert finish(quick, Booking(call)) == "booked"
    assert bookings(call) == 1


def test_a_fence_is_lost_to_a_verdict_too() -> None:
    call = a_call()
    attempt = claimed(call)
    age(call, "locked_until")
    refused(call)
    change(call, status=Status.FAILED_RETRYABLE, reconcile_after=None)
    with pytest.raises(LostFence):
        finish(attempt, Booking(call))
    assert bookings(call) == 0


def test_a_record_that_is_gone_is_a_lost_fence() -> None:
    call = a_call()
    attempt = claimed(call)
    IdempotencyKey.objects.filter(id=call.id).delete()
    with pytest.raises(LostFence):
        finish(attempt, Booking(call))
    assert bookings(call) == 0


def test_a_refusal_is_an_answer_like_any_other() -> None:
    call = a_call()
    finish(claimed(call), Booking(call, reply=REFUSED))
    answer = refused(call)
    assert isinstance(answer, Replay)
    assert answer.reply == REFUSED


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_a_refusal_proves_nothing_while_an_earlier_attempt_may_land(late: bool) -> None:
    call = a_call(on_lost_lease="restart")
    claimed(call)
    age(call, "locked_until")
    attempt = claimed(call)
    if late:
        change(call, status=Status.UNKNOWN, locked_until=None, reconcile_after=row_of(call).created_at)
    with pytest.raises(OutcomeUnknown):
        finish(attempt, Booking(call, reply=REFUSED))
    assert (status_of(call), bookings(call)) == (Status.UNKNOWN, 0)
    assert (("T5", "refused_while_tainted") in events(call)) is not late


def test_a_success_while_an_earlier_attempt_may_land_is_the_answer() -> None:
    call = a_call(on_lost_lease="restart")
    claimed(call)
    age(call, "locked_until")
    assert finish(claimed(call), Booking(call)) == "booked"
    assert status_of(call) is Status.COMPLETED


def test_an_attempt_is_finished_once() -> None:
    call = a_call()
    attempt = claimed(call)
    finish(attempt, Booking(call))
    with pytest.raises(AlreadyFinished):
        finish(attempt, Booking(call))
    assert bookings(call) == 1


def test_a_response_is_not_stored_inside_the_callers_transaction() -> None:
    call = a_call()
    attempt = claimed(call)
    with transaction.atomic(), pytest.raises(InsideTransaction, match="A response cannot be stored"):
        finish(attempt, Booking(call))
    assert (status_of(call), bookings(call)) == (Status.IN_PROGRESS, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_constraint_that_speaks_at_the_commit_is_the_handlers_own_error(mode: str) -> None:
    call = a_call(mode=mode)

    def work(attempt: object) -> tuple[str, Reply]:
        LedgerEntry.objects.create(reference=call.key, account="cash", amount=5, owner_id=987654321)
        return "booked", BOOKED

    with pytest.raises(IntegrityError):
        run_call(call, work)
    assert bookings(call) == 0
    if mode == "leased":
        assert row_of(call).last_error_code == "IntegrityError"
        assert status_of(call) is Status.UNKNOWN
    else:
        assert not IdempotencyKey.objects.filter(id=call.id).exists()


def test_another_store_that_fails_inside_the_work_is_the_works_error() -> None:
    call = a_call()

    def work(attempt: object) -> tuple[str, Reply]:
        raise StoreUnavailable("the other one")

    with pytest.raises(StoreUnavailable, match="the other one"):
        run_call(call, work)
    assert status_of(call) is Status.UNKNOWN


def test_finished_work_is_not_in_doubt_whatever_comes_after() -> None:
    call = a_call()
    attempt = claimed(call)
    finish(attempt, Booking(call))
    fail(attempt, RuntimeError())
    assert status_of(call) is Status.COMPLETED


def test_a_lost_fence_of_another_key_is_not_told_of_this_attempt() -> None:
    attempt = claimed(a_call())

    def work() -> tuple[str, Reply]:
        raise LostFence("about the other key")

    with heard(signals.fence_lost) as fences, pytest.raises(LostFence):
        finish(attempt, work)
    assert fences == []
    assert finish(attempt, Booking(attempt.call)) == "booked", "nobody has taken the record over"
