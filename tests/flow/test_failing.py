"""How an attempt ends that has no answer: proof that nothing happened, or doubt."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.db import connection

from django_idempotency import Reply, Status, signals
from django_idempotency.core.decisions import InDoubt, Replay
from django_idempotency.exceptions import NotExecuted
from django_idempotency.flow.finish import doubt, fail, finish, release
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from tests.kit.calls import Booking, a_call, bookings, claimed, heard, refused
from tests.kit.databases import backend, elsewhere, kill
from tests.kit.records import age, events, row_of, status_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ENDINGS = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.parametrize("error", [RuntimeError, *ENDINGS])
def test_what_is_not_an_answer_is_doubt(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    call = a_call()
    work = Booking(call, raises=error())
    with heard(signals.doubted) as doubted, pytest.raises(error):
        run_call(call, work)
    row = row_of(call)
    assert (row.status, row.last_error_code, bookings(call)) == (Status.UNKNOWN, error.__name__, 0)
    assert row.reconcile_after is not None
    assert events(call) == [("T5", error.__name__)]
    assert [each["code"] for each in doubted] == [error.__name__]
    assert "unknown" in caplog.text
    assert isinstance(run_call(call, work), InDoubt)
    assert work.runs == 1


@pytest.mark.parametrize("error", [RuntimeError, *ENDINGS])
def test_in_atomic_mode_nothing_is_left_of_it(error: type[BaseException]) -> None:
    call = a_call(mode="atomic")
    with pytest.raises(error):
        run_call(call, Booking(call, raises=error()))
    assert not IdempotencyKey.objects.filter(id=call.id).exists()
    assert run_call(call, Booking(call)) == "booked"
    assert bookings(call) == 1


def test_proof_that_nothing_happened_gives_the_key_back() -> None:
    call = a_call()
    with heard(signals.released) as released, pytest.raises(NotExecuted):
        run_call(call, Booking(call, raises=NotExecuted()))
    assert (status_of(call), bookings(call), len(released)) == (Status.FAILED_RETRYABLE, 0, 1)
    with heard(signals.retried) as retried:
        assert run_call(call, Booking(call)) == "booked"
    row = row_of(call)
    assert (row.status, row.attempts, row.tainted, len(retried)) == (Status.COMPLETED, 2, False, 1)


def test_the_endpoints_own_proof_counts() -> None:
    call = a_call(not_executed=lambda error: isinstance(error, ConnectionRefusedError))
    with pytest.raises(ConnectionRefusedError):
        run_call(call, Booking(call, raises=ConnectionRefusedError()))
    assert status_of(call) is Status.FAILED_RETRYABLE
    with pytest.raises(ConnectionResetError):
        run_call(call, Booking(call, raises=ConnectionResetError()))
    assert status_of(call) is Status.UNKNOWN


def test_a_proof_that_fails_itself_proves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def confused(error: BaseException) -> bool:
        raise LookupError("cannot tell")

    call = a_call(not_executed=confused)
    with pytest.raises(ConnectionRefusedError):
        run_call(call, Booking(call, raises=ConnectionRefusedError()))
    assert status_of(call) is Status.UNKNOWN
    assert "cannot tell" in caplog.text


def test_an_endpoint_may_vouch_that_a_repeat_is_harmless() -> None:
    call = a_call(on_error="release")
    with pytest.raises(RuntimeError):
        run_call(call, Booking(call, raises=RuntimeError()))
    assert status_of(call) is Status.FAILED_RETRYABLE


@pytest.mark.parametrize("error", ENDINGS)
def test_a_worker_that_was_stopped_is_doubt_even_there(error: type[BaseException]) -> None:
    call = a_call(on_error="release")
    with pytest.raises(error):
        run_call(call, Booking(call, raises=error()))
    assert status_of(call) is Status.UNKNOWN


def test_proof_is_worth_nothing_while_an_earlier_attempt_may_land() -> None:
    call = a_call(on_lost_lease="restart")
    claimed(call)
    age(call, "locked_until")
    fail(claimed(call), NotExecuted())
    assert status_of(call) is Status.UNKNOWN


def test_only_the_owner_ends_its_attempt() -> None:
    call = a_call(on_lost_lease="restart")
    slow = claimed(call)
    age(call, "locked_until")
    claimed(call)
    assert not release(slow, "late")
    assert not doubt(slow, "late")
    assert status_of(call) is Status.IN_PROGRESS


def test_a_key_tried_too_often_is_refused_for_good() -> None:
    call = a_call(attempts=3, attempts_span=timedelta(0))
    work = Booking(call, raises=NotExecuted())
    for _ in range(3):
        with pytest.raises(NotExecuted):
            run_call(call, work)
    assert (status_of(call), work.runs) == (Status.FAILED_RETRYABLE, 3)
    first, second = refused(call), refused(call)
    assert isinstance(first, Replay)
    assert isinstance(second, Replay)
    assert (first.reply.status, first.reply) == (500, second.reply)
    assert b"idempotency_attempts_exhausted" in (first.reply.body or b"")
    row = row_of(call)
    assert (row.status, row.last_error_code) == (Status.FAILED, "attempts_exhausted")
    assert row.expires_at is not None


def test_one_attempt_below_the_cap_still_runs() -> None:
    call = a_call(attempts=3, attempts_span=timedelta(0))
    for _ in range(2):
        with pytest.raises(NotExecuted):
            run_call(call, Booking(call, raises=NotExecuted()))
    assert run_call(call, Booking(call)) == "booked"
    assert row_of(call).attempts == 3


def test_atomic_mode_stores_the_refusal_that_leased_attempts_left_behind() -> None:
    leased = a_call(attempts=1, attempts_span=timedelta(0))
    fail(claimed(leased), NotExecuted())
    work = Booking(leased)
    answer = run_call(a_call(leased.key, attempts=1, attempts_span=timedelta(0), mode="atomic"), work)
    assert isinstance(answer, Replay)
    assert (answer.reply.status, status_of(leased), work.runs) == (500, Status.FAILED, 0)


def test_atomic_mode_marks_the_doubt_that_a_leased_attempt_left_behind() -> None:
    leased = a_call()
    claimed(leased)
    age(leased, "locked_until")
    work = Booking(leased)
    with heard(signals.lease_lapsed) as lapsed:
        answer = run_call(a_call(leased.key, mode="atomic"), work)
    assert isinstance(answer, InDoubt)
    assert (status_of(leased), work.runs, len(lapsed)) == (Status.UNKNOWN, 0, 1)


@pytest.mark.direct
def test_a_connection_that_died_in_the_work_leaves_a_doubt_that_is_stored(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("a file has no connection to lose")
    call = a_call()

    def work(attempt: object) -> tuple[str, Reply]:
        session = backend()
        elsewhere(lambda: kill(session))
        return Booking(call)()

    with pytest.raises(Exception, match=r".*"):
        run_call(call, work)
    assert (status_of(call), bookings(call)) == (Status.UNKNOWN, 0)


def test_a_connection_that_its_driver_knows_to_be_closed_is_opened_again() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("a file has no connection to lose")
    connection.ensure_connection()
    connection.connection.close()
    call = a_call()
    assert finish(claimed(call), Booking(call)) == "booked"


@pytest.mark.direct
def test_a_connection_that_was_lost_during_an_external_call_is_replaced(vendor: str) -> None:
    """Nothing stands before the COMMIT, and what `finish` runs may run again."""
    if vendor == "sqlite":
        pytest.skip("a file has no connection to lose")
    call = a_call()
    attempt = claimed(call)
    session = backend()
    elsewhere(lambda: kill(session))
    assert finish(attempt, Booking(call), rerun=True) == "booked"
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


def test_a_connection_that_closed_before_the_work_leaves_a_doubt_that_is_stored() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("a file has no connection to lose")
    call = a_call()
    attempt = claimed(call)
    connection.connection.close()
    fail(attempt, RuntimeError())
    assert status_of(call) is Status.UNKNOWN
