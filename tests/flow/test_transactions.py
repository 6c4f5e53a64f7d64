"""Whose transaction it is: nobody's, somebody's, or a test case's."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_idempotency import Reply, Status, signals
from django_idempotency.core.decisions import InDoubt, InFlight, Mismatch, Replay
from django_idempotency.exceptions import InsideTransaction, LostFence, NotExecuted
from django_idempotency.flow.atomic import run_atomic
from django_idempotency.flow.claim import begin
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from tests.kit.calls import Booking, a_call, bookings, claimed, heard, refused
from tests.kit.databases import without_autocommit
from tests.kit.records import age, status_of

pytestmark = pytest.mark.vendor

MODES = ["leased", "atomic"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", MODES)
def test_a_claim_inside_the_callers_transaction_is_an_error(mode: str) -> None:
    call = a_call(mode=mode)
    work = Booking(call)
    with transaction.atomic(), pytest.raises(InsideTransaction, match=r"atomic\(\)"):
        run_call(call, work)
    assert work.runs == 0
    assert not IdempotencyKey.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", MODES)
def test_a_claim_without_autocommit_is_an_error_that_says_so(mode: str) -> None:
    """Nothing would commit it before the work runs."""
    call = a_call(mode=mode)
    work = Booking(call)
    with without_autocommit(), pytest.raises(InsideTransaction, match="turn autocommit on"):
        run_call(call, work)
    assert work.runs == 0
    assert run_call(call, work) == "booked"


@pytest.mark.django_db(transaction=True)
def test_a_claim_is_committed_before_anything_runs() -> None:
    call = a_call()
    begin(call)
    assert not connection.in_atomic_block
    assert status_of(call) is Status.IN_PROGRESS


@pytest.mark.django_db(transaction=True)
def test_a_handler_that_opens_its_own_transactions_takes_part_in_ours() -> None:
    call = a_call()

    def work(attempt: object) -> tuple[str, Reply]:
        with transaction.atomic():
            return Booking(call)()

    assert run_call(call, work) == "booked"


@pytest.mark.django_db
@pytest.mark.parametrize("mode", MODES)
def test_inside_a_test_case_the_callers_transaction_is_still_an_error(mode: str) -> None:
    call = a_call(mode=mode)
    with transaction.atomic(), pytest.raises(InsideTransaction):
        run_call(call, Booking(call))


def everything_happens(mode: str) -> None:
    call = a_call(mode=mode)
    work = Booking(call)
    with heard(signals.completed) as completed:
        assert run_call(call, work) == "booked"
    assert isinstance(run_call(call, work), Replay)
    assert isinstance(run_call(a_call(call.key, body=b"other", mode=mode), work), Mismatch)
    assert (work.runs, bookings(call), status_of(call), len(completed)) == (1, 1, Status.COMPLETED, 1)
    age(call, "expires_at")
    assert run_call(call, work) == "booked"

    released = a_call()
    with pytest.raises(NotExecuted):
        run_call(released, Booking(released, raises=NotExecuted()))
    assert status_of(released) is Status.FAILED_RETRYABLE
    assert run_call(a_call(released.key, mode=mode), Booking(released)) == "booked"

    doubtful = a_call()
    with pytest.raises(RuntimeError):
        run_call(doubtful, Booking(doubtful, raises=RuntimeError()))
    assert isinstance(run_call(a_call(doubtful.key, mode=mode), Booking(doubtful)), InDoubt)
    assert bookings(doubtful) == 0


def a_lost_fence_leaves_the_transaction_usable() -> None:
    call = a_call(on_lost_lease="restart")
    slow = claimed(call)
    assert isinstance(refused(call), InFlight)
    age(call, "locked_until")
    quick = claimed(call)
    with pytest.raises(LostFence):
        finish(slow, Booking(call))
    finish(quick, Booking(call))
    fail(quick, RuntimeError())
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


@pytest.mark.django_db
@pytest.mark.parametrize("mode", MODES)
def test_everything_works_inside_the_transaction_of_a_test(mode: str) -> None:
    everything_happens(mode)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", MODES)
def test_everything_works_without_one(mode: str) -> None:
    everything_happens(mode)


@pytest.mark.django_db
def test_a_lost_fence_inside_the_transaction_of_a_test() -> None:
    a_lost_fence_leaves_the_transaction_usable()


class InTestCase(TestCase):
    """Django's own test case, whose transaction is nobody's."""

    def test_leased(self) -> None:
        everything_happens("leased")
        a_lost_fence_leaves_the_transaction_usable()

    def test_atomic(self) -> None:
        everything_happens("atomic")

    def test_hooks_wait_for_a_commit_that_never_comes(self) -> None:
        call = a_call()
        ran: list[str] = []

        def work(attempt: object) -> tuple[str, Reply]:
            transaction.on_commit(lambda: ran.append("hook"))
            return Booking(call)()

        with self.captureOnCommitCallbacks(execute=True) as hooks:
            run_call(call, work)
        assert (len(hooks), ran) == (1, ["hook"])

    def test_the_callers_transaction(self) -> None:
        call = a_call(mode="atomic")
        with transaction.atomic(), pytest.raises(InsideTransaction):
            run_atomic(call, Booking(call))
