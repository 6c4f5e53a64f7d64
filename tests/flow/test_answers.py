"""What a request gets whose key is there already."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from django_idempotency import Reply, Status, signals
from django_idempotency.core.decisions import Accepted, Gone, InDoubt, InFlight, Mismatch, Replay
from django_idempotency.flow.claim import peek
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.run import run_call
from tests.kit.calls import BOOKED, Booking, a_call, bookings, claimed, heard, refused
from tests.kit.records import age, change, row_of, status_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

MODES = ["leased", "atomic"]


@pytest.mark.parametrize("mode", MODES)
def test_the_first_request_runs_and_every_other_gets_its_answer(mode: str) -> None:
    call = a_call(mode=mode)
    work = Booking(call)
    assert run_call(call, work) == "booked"
    with heard(signals.replayed) as replayed:
        again = [run_call(call, work) for _ in range(3)]
    assert [answer.reply for answer in again if isinstance(answer, Replay)] == [BOOKED] * 3
    assert (work.runs, bookings(call), status_of(call)) == (1, 1, Status.COMPLETED)
    assert [each["call"] for each in replayed] == [call] * 3


@pytest.mark.parametrize(
    "reply",
    [
        Reply(204, (), b""),
        Reply(200, (("Link", "</1>"), ("Link", "</2>")), bytes(range(256))),
        Reply(201, (("Content-Type", "text/plain; charset=utf-8"),), None, schema_version=7),
        Reply(404, (), "nö".encode()),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_replay_is_the_stored_answer_to_the_byte(mode: str, reply: Reply) -> None:
    call = a_call(mode=mode)
    run_call(call, Booking(call, reply=reply))
    again = run_call(call, Booking(call))
    assert isinstance(again, Replay)
    assert again.reply == reply


@pytest.mark.parametrize("mode", MODES)
def test_another_payload_under_the_key_is_a_mismatch_and_changes_nothing(mode: str) -> None:
    call = a_call(mode=mode)
    run_call(call, Booking(call))
    before = row_of(call).__dict__ | {"_state": None}
    other = a_call(call.key, body=b'{"amount": 6}', mode=mode)
    work = Booking(other)
    with heard(signals.misused) as misused:
        assert isinstance(run_call(other, work), Mismatch)
    assert work.runs == 0
    assert len(misused) == 1
    assert row_of(call).__dict__ | {"_state": None} == before


def test_the_same_payload_in_another_spelling_is_the_same_request() -> None:
    call = a_call(body=b'{"amount": 5, "to": "bob"}')
    run_call(call, Booking(call))
    assert isinstance(refused(a_call(call.key, body=b'{"to":"bob","amount":5.0}')), Replay)


@pytest.mark.parametrize("state", ["running", "in doubt", "given up"])
def test_a_mismatch_wins_in_every_state(state: str) -> None:
    call = a_call()
    attempt = claimed(call)
    if state != "running":
        fail(attempt, RuntimeError())
    if state == "given up":
        change(call, status=Status.DEAD_LETTER, reconcile_after=None)
    assert isinstance(refused(a_call(call.key, body=b"other")), Mismatch)


def test_a_running_request_is_told_to_wait_no_longer_than_the_hint() -> None:
    call = a_call(retry_hint=timedelta(seconds=2))
    claimed(call)
    with heard(signals.in_flight) as in_flight:
        answer = refused(call)
    assert isinstance(answer, InFlight)
    assert answer.retry_after == 2
    assert len(in_flight) == 1


def test_a_lease_that_ends_before_the_hint_is_the_wait() -> None:
    call = a_call(lease=timedelta(seconds=5), retry_hint=timedelta(minutes=1))
    claimed(call)
    answer = refused(call)
    assert isinstance(answer, InFlight)
    assert 1 <= answer.retry_after <= 5


def test_a_doubt_is_answered_as_one_and_nothing_runs() -> None:
    call = a_call()
    fail(claimed(call), RuntimeError())
    work = Booking(call)
    with heard(signals.in_doubt) as in_doubt:
        answer = run_call(call, work)
    assert isinstance(answer, InDoubt)
    assert (answer.dead, work.runs, len(in_doubt)) == (False, 0, 1)


def test_a_doubt_that_was_given_up_says_so() -> None:
    call = a_call()
    fail(claimed(call), RuntimeError())
    change(call, status=Status.DEAD_LETTER, reconcile_after=None)
    answer = refused(call)
    assert isinstance(answer, InDoubt)
    assert answer.dead


def test_deferred_work_is_accepted_not_run() -> None:
    call = a_call()
    claimed(call)
    change(call, status=Status.PENDING, deferred=True)
    answer = refused(call)
    assert isinstance(answer, Accepted)
    assert answer.retry_after == 2


def test_a_lease_that_ran_out_is_doubt_at_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    call = a_call()
    claimed(call)
    age(call, "locked_until")
    with heard(signals.lease_lapsed) as lapsed:
        answer = refused(call)
    assert isinstance(answer, InDoubt)
    assert status_of(call) is Status.UNKNOWN
    assert [each["record"] for each in lapsed] == [call.id]
    assert "expired" in caplog.text
    assert call.key not in caplog.text


def test_peek_says_what_a_request_would_get_and_claims_nothing() -> None:
    call = a_call()
    assert peek(call) is None
    attempt = claimed(call)
    assert isinstance(peek(call), InFlight)
    age(call, "locked_until")
    assert isinstance(peek(call), InDoubt)
    assert status_of(call) is Status.IN_PROGRESS
    finish(attempt, Booking(call))
    assert isinstance(peek(call), Replay)
    age(call, "expires_at")
    assert peek(call) is None
    assert status_of(call) is Status.COMPLETED


def test_peek_refuses_an_expired_key_where_the_endpoint_does() -> None:
    call = a_call(after_expiry="gone", expiry="soft")
    finish(claimed(call), Booking(call))
    age(call, "expires_at")
    assert isinstance(peek(call), Gone)


def test_the_same_key_in_another_scope_is_another_key() -> None:
    call = a_call()
    run_call(call, Booking(call))
    claimed(replace(call, scope="bob payments"))
