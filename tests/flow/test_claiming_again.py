"""Records whose past is over: expired, or lost by an attempt that may be restarted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_idempotency import Status, signals
from django_idempotency.core.decisions import Gone, InFlight, Replay
from django_idempotency.core.states import LostLease
from django_idempotency.exceptions import LostFence, NotExecuted
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.run import run_call
from tests.kit.calls import Booking, a_call, bookings, claimed, heard, refused
from tests.kit.databases import in_transaction
from tests.kit.records import age, change, events, row_of, status_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

MODES = ["leased", "atomic"]


@pytest.mark.parametrize("mode", MODES)
def test_an_expired_key_runs_as_a_new_one(mode: str) -> None:
    call = a_call(mode=mode, on_error="release")
    run_call(call, Booking(call))
    age(call, "expires_at", "created_at")
    other = a_call(call.key, body=b"another request", mode=mode)
    with heard(signals.renewed) as renewed:
        assert run_call(other, Booking(other)) == "booked"
    row = row_of(call)
    assert (row.status, row.attempts, row.fingerprint) == (Status.COMPLETED, 1, other.fingerprint)
    assert row.created_at.year > 2000
    assert (bookings(call), len(renewed)) == (2, 1)
    assert isinstance(run_call(other, Booking(other)), Replay)


def test_an_expired_key_counts_its_attempts_and_its_age_anew() -> None:
    """Retry-After grows with the number of the attempt, and the trail of events shows it."""
    call = a_call()
    fail(claimed(call), NotExecuted())
    second = claimed(call)
    finish(second, Booking(call))
    age(call, "expires_at", "created_at")
    renewed = claimed(call)
    assert (second.number, renewed.number, row_of(call).attempts, renewed.age) == (2, 1, 1, 0.0)


@pytest.mark.parametrize("mode", MODES)
def test_an_endpoint_may_refuse_expired_keys_instead(mode: str) -> None:
    call = a_call(mode=mode, after_expiry="gone", expiry="soft")
    run_call(call, Booking(call))
    age(call, "expires_at")
    work = Booking(call)
    with heard(signals.refused_expired) as gone:
        assert isinstance(run_call(call, work), Gone)
    assert (work.runs, len(gone), status_of(call)) == (0, 1, Status.COMPLETED)


@pytest.mark.parametrize("left", [Status.EXPIRED, Status.FAILED_RETRYABLE])
def test_it_does_not_matter_whether_the_reaper_came_by(left: Status) -> None:
    call = a_call()
    finish(claimed(call), Booking(call))
    change(call, status=left, **({} if left is Status.EXPIRED else {"response_status": None}))
    age(call, "expires_at")
    assert run_call(call, Booking(call)) == "booked"
    assert bookings(call) == 2


def test_what_is_kept_for_ever_never_expires() -> None:
    call = a_call(retention=None)
    finish(claimed(call), Booking(call))
    assert row_of(call).expires_at is None
    assert isinstance(refused(call), Replay)


def test_an_expired_key_is_renewed_by_one_request() -> None:
    call = a_call()
    finish(claimed(call), Booking(call))
    age(call, "expires_at")
    claimed(call)
    assert isinstance(refused(call), InFlight)


def test_a_lost_attempt_that_may_be_restarted_is_taken_over() -> None:
    call = a_call(on_lost_lease="restart", lease=timedelta(minutes=1))
    lost = claimed(call)
    assert isinstance(refused(call), InFlight)
    age(call, "locked_until")
    with heard(signals.taken_over) as taken:
        attempt = claimed(call)
    row = row_of(call)
    assert attempt.repeat
    assert attempt.token != lost.token
    assert (row.status, row.attempts, row.tainted, len(taken)) == (Status.IN_PROGRESS, 2, True, 1)
    assert events(call) == [("T7", "")]
    assert finish(attempt, Booking(call)) == "booked"
    with pytest.raises(LostFence):
        finish(lost, Booking(call))
    assert bookings(call) == 1


def test_a_doubt_that_may_be_restarted_is_taken_over_at_once() -> None:
    call = a_call(on_lost_lease="restart")
    fail(claimed(call), RuntimeError())
    assert status_of(call) is Status.UNKNOWN
    assert run_call(call, Booking(call)) == "booked"
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


def test_what_the_record_was_claimed_with_decides_not_what_the_code_says_today() -> None:
    call = a_call()
    claimed(call)
    age(call, "locked_until")
    refused(a_call(call.key, on_lost_lease="restart"))
    assert row_of(call).on_lost_lease == LostLease.UNKNOWN
    assert status_of(call) is Status.UNKNOWN


@pytest.mark.parametrize("claim", ["renew", "retry", "take over"])
@pytest.mark.parametrize("ends_well", [True, False])
def test_atomic_mode_takes_a_record_over_in_its_own_transaction(claim: str, ends_well: bool) -> None:
    call = a_call(on_lost_lease="restart")
    attempt = claimed(call)
    if claim == "retry":
        fail(attempt, NotExecuted())
    elif claim == "renew":
        finish(attempt, Booking(call))
        age(call, "expires_at")
    else:
        age(call, "locked_until")
    before, booked = row_of(call), bookings(call)
    atomic = a_call(call.key, mode="atomic")
    open_transactions: list[bool] = []
    receiver = {"renew": signals.renewed, "retry": signals.retried, "take over": signals.taken_over}[claim]
    with heard(receiver, lambda: open_transactions.append(in_transaction())) as told:
        if ends_well:
            assert run_call(atomic, Booking(call)) == "booked"
        else:
            with pytest.raises(RuntimeError):
                run_call(atomic, Booking(call, raises=RuntimeError()))
    row = row_of(call)
    if ends_well:
        assert (row.status, bookings(call), open_transactions) == (Status.COMPLETED, booked + 1, [False])
    else:
        assert (row.status, row.attempt_token, row.attempts) == (before.status, before.attempt_token, before.attempts)
        assert (bookings(call), told) == (booked, [])
