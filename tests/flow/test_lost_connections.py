"""A connection that is lost at the worst moment: while the claim or the COMMIT is on its way, or its answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import Status, signals
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import InDoubt, InFlight, Replay
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import OutcomeUnknown, StoreUnavailable
from django_idempotency.flow.deferred import defer
from django_idempotency.flow.finish import finish
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import perform
from tests.kit.calls import Booking, a_call, bookings, claimed, heard, refused
from tests.kit.databases import running, somebody_waits_for_a_lock
from tests.kit.exports import export
from tests.kit.proxy import ALIAS, Proxy, Router, Theft
from tests.kit.records import events, status_of
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

CLAIM = b"INSERT INTO idempotency_key"
SHORT = timedelta(seconds=1)


def booking(call: Call) -> Booking:
    return Booking(call, using=ALIAS)


def test_a_commit_that_landed_is_answered_although_its_answer_was_lost(proxy: Proxy) -> None:
    call = a_call()
    work = booking(call)
    proxy.steal(b"COMMIT", Theft.ANSWER)
    assert run_call(call, work, ALIAS) == "booked"
    assert proxy.stolen.is_set()
    assert (status_of(call), bookings(call), work.runs) == (Status.COMPLETED, 1, 1)
    assert isinstance(run_call(call, work, ALIAS), Replay)


def test_a_commit_that_did_not_land_is_doubt(proxy: Proxy) -> None:
    call = a_call()
    work = booking(call)
    proxy.steal(b"COMMIT", Theft.MESSAGE)
    with heard(signals.doubted) as doubted, pytest.raises(OutcomeUnknown):
        run_call(call, work, ALIAS)
    assert (status_of(call), bookings(call), work.runs) == (Status.UNKNOWN, 0, 1)
    assert events(call) == [("T5", "completion_lost")]
    assert [each["code"] for each in doubted] == ["completion_lost"]
    assert isinstance(run_call(call, work, ALIAS), InDoubt)
    assert work.runs == 1


def test_a_commit_whose_answer_never_comes_is_cut_off_at_the_limit(proxy: Proxy) -> None:
    call = a_call(claim_limit=SHORT)
    proxy.steal(b"COMMIT", Theft.SILENCE)
    assert run_call(call, booking(call), ALIAS) == "booked"
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


def test_a_commit_that_is_still_on_its_way_is_waited_for(proxy: Proxy) -> None:
    call = a_call()
    proxy.steal(b"COMMIT", Theft.DELAY)
    with running(ALIAS, lambda: run_call(call, booking(call), ALIAS)) as outcome:
        wait_until(somebody_waits_for_a_lock)
        proxy.forward.set()
        assert outcome.result(60) == "booked"
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


def test_a_commit_that_lands_after_all_patience_is_the_answer_of_the_next_request(proxy: Proxy) -> None:
    call = a_call(claim_limit=SHORT)
    work = booking(call)
    proxy.steal(b"COMMIT", Theft.DELAY)
    with running(ALIAS, lambda: run_call(call, work, ALIAS)) as outcome, pytest.raises(OutcomeUnknown):
        outcome.result(60)
    with pytest.raises(StoreUnavailable):  # the unique index cannot tell while the row is being changed
        refused(call)
    proxy.forward.set()
    wait_until(lambda: status_of(call) is Status.COMPLETED)
    assert isinstance(refused(call), Replay)
    assert (bookings(call), work.runs) == (1, 1)


@pytest.mark.parametrize("theft", [Theft.MESSAGE, Theft.ANSWER])
def test_a_claim_whose_answer_was_lost_finds_itself_again(proxy: Proxy, theft: Theft) -> None:
    call = a_call()
    work = booking(call)
    proxy.steal(CLAIM, theft)
    assert run_call(call, work, ALIAS) == "booked"
    assert proxy.stolen.is_set()
    assert (status_of(call), bookings(call), work.runs) == (Status.COMPLETED, 1, 1)


def test_a_claim_whose_answer_never_comes_fails_closed(proxy: Proxy) -> None:
    call = a_call(claim_limit=SHORT)
    work = booking(call)
    proxy.steal(CLAIM, Theft.SILENCE)
    with heard(signals.store_failed) as failed, pytest.raises(StoreUnavailable):
        run_call(call, work, ALIAS)
    assert (work.runs, len(failed)) == (0, 1)
    assert bookings(call) == 0


def test_late_work_is_read_back_as_well(proxy: Proxy) -> None:
    call = a_call()
    attempt = claimed(call)
    attempt.using = ALIAS
    proxy.steal(b"COMMIT", Theft.ANSWER)
    assert finish(attempt, booking(call)) == "booked"
    assert attempt.finished


@pytest.mark.parametrize("picked_up", [False, True])
def test_work_that_was_handed_over_is_read_back_as_well(proxy: Proxy, picked_up: bool, settings: Any) -> None:
    settings.IDEMPOTENCY = {"ENQUEUE": None}
    call = a_call()
    attempt = claimed(call)
    attempt.using = ALIAS
    proxy.steal(b"COMMIT", Theft.DELAY if picked_up else Theft.ANSWER)
    with running(ALIAS, lambda: defer(attempt, export, {"title": "may"})) as outcome:
        if picked_up:
            wait_until(somebody_waits_for_a_lock)
            proxy.forward.set()
            wait_until(lambda: status_of(call) is Status.PENDING)
            perform(call.id)
        outcome.result(60)
    assert status_of(call) is (Status.COMPLETED if picked_up else Status.PENDING)


def test_work_whose_commit_never_came_was_not_handed_over(proxy: Proxy) -> None:
    call = a_call()
    attempt = claimed(call)
    attempt.using = ALIAS
    proxy.steal(b"COMMIT", Theft.MESSAGE)
    with pytest.raises(OutcomeUnknown):
        defer(attempt, export, {"title": "may"})
    assert status_of(call) is Status.UNKNOWN


def test_an_atomic_commit_that_landed_is_answered(proxy: Proxy) -> None:
    call = a_call(mode="atomic")
    work = booking(call)
    proxy.steal(b"COMMIT", Theft.ANSWER)
    assert run_call(call, work, ALIAS) == "booked"
    assert (status_of(call), bookings(call), work.runs) == (Status.COMPLETED, 1, 1)


def test_an_atomic_commit_that_did_not_land_left_nothing(proxy: Proxy) -> None:
    call = a_call(mode="atomic")
    proxy.steal(b"COMMIT", Theft.MESSAGE)
    with pytest.raises(OutcomeUnknown):
        run_call(call, booking(call), ALIAS)
    assert not IdempotencyKey.objects.filter(id=call.id).exists()
    assert run_call(call, booking(call), ALIAS) == "booked"
    assert bookings(call) == 1


def test_an_atomic_commit_on_its_way_keeps_every_other_request_out(proxy: Proxy) -> None:
    call = a_call(mode="atomic", claim_limit=SHORT)
    proxy.steal(b"COMMIT", Theft.DELAY)
    with running(ALIAS, lambda: run_call(call, booking(call), ALIAS)) as outcome, pytest.raises(OutcomeUnknown):
        outcome.result(60)  # not "nothing ran": it will have run
    again = Booking(call)
    assert isinstance(run_call(call, again), InFlight)
    proxy.forward.set()
    wait_until(lambda: bookings(call) == 1)
    assert isinstance(run_call(call, again), Replay)
    assert again.runs == 0


def test_a_store_that_goes_away_after_a_call_leaves_doubt(proxy: Proxy, settings: Any) -> None:
    """Not "nothing was executed": the provider was asked."""

    def keeps(status: int) -> bool:
        proxy.close()
        return status < 500

    @idempotent(transaction="late", share_anonymous=True, store=keeps, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        request.idempotency.derive("charge")
        return HttpResponse(status=504)

    settings.DATABASE_ROUTERS = [Router()]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", pay, name="it")]})
    answer = Client().post("/it", headers={"Idempotency-Key": uuid4().hex})
    assert (answer.status_code, answer.json()["safe_new_key"]) == (409, False)


@pytest.mark.parametrize("called", [True, False], ids=["after a call", "without a call"])
def test_an_atomic_view_whose_store_goes_away_is_free_only_if_it_called_nothing(
    proxy: Proxy, settings: Any, called: bool
) -> None:
    """Its writes are rolled back for certain, but not the charge that it asked for."""

    @idempotent(mode="atomic", share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        if called:
            request.idempotency.derive("charge")
        proxy.close()
        return HttpResponse("paid")

    settings.DATABASE_ROUTERS = [Router()]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", pay, name="it")]})
    answer = Client().post("/it", headers={"Idempotency-Key": uuid4().hex})
    if called:
        assert (answer.status_code, answer.json()["safe_new_key"]) == (409, False)
    else:
        assert answer.status_code == 503


def test_another_body_after_a_lost_connection_is_warned_against_a_new_key(proxy: Proxy, settings: Any) -> None:
    """The charge may have happened: a client that is told "use a new key" pays twice."""

    @idempotent(transaction="late", share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        request.idempotency.derive("charge")
        proxy.close()
        return HttpResponse("paid")

    settings.DATABASE_ROUTERS = [Router()]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", pay, name="it")]})
    client, key = Client(), {"Idempotency-Key": uuid4().hex}
    lost = client.post("/it", {"amount": 1}, "application/json", headers=key)
    assert (lost.status_code, lost.json()["safe_new_key"]) == (409, False)
    settings.DATABASE_ROUTERS = []
    for _ in range(2):
        refused = client.post("/it", {"amount": 1, "sent_at": "later"}, "application/json", headers=key)
        assert (refused.status_code, refused.json()["safe_new_key"]) == (422, False)
        assert "Do not send it with a new key" in refused.json()["detail"]
        IdempotencyKey.objects.update(status=Status.UNKNOWN, locked_until=None, reconcile_after="2000-01-01T00:00Z")
