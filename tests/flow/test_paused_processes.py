"""The process itself stands still, as with a paused machine, while the database answers; then the watchdog fires."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from time import sleep
from typing import Any

import pytest
from django.db import connection, connections
from django.http import HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from django_idempotency import Status, json_reply
from django_idempotency.core.refs import Ref
from django_idempotency.decorators import IdempotentRequest, idempotent
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.claim import lapse
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.flow.run import run_call
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, Outcome, Verdict, reconciler, resolve
from django_idempotency.store import limits
from django_idempotency.store.watchdog import WATCHDOG
from tests.kit.calls import Booking, a_call, bookings
from tests.kit.databases import another_alias
from tests.kit.http import KEY
from tests.kit.records import LONG_AGO, status_of
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ALIAS = "paused"
LIMIT = timedelta(seconds=1)
THEIRS = json_reply(201, {"id": "theirs"})


@pytest.fixture(autouse=True)
def _needs_a_server(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no socket that the watchdog could cut")


class Pause:
    """Stands still once, after the answer to the first statement that begins like this."""

    def __init__(self, beginning: str, stand_still: Callable[[], None]) -> None:
        self.beginning, self.stand_still = beginning, stand_still
        self.done = False

    def __call__(self, execute: Any, sql: str, *more: Any) -> Any:
        result = execute(sql, *more)
        if not self.done and sql.strip().startswith(self.beginning):
            self.done = True
            self.stand_still()
        return result


@contextmanager
def paused(beginning: str, stand_still: Callable[[], None]) -> Iterator[Pause]:
    pause = Pause(beginning, stand_still)
    with another_alias(ALIAS), connections[ALIAS].execute_wrapper(pause):
        yield pause


def until_the_watchdog_fired() -> None:
    wait_until(lambda: not WATCHDOG._guarded)


def in_a_stopped_child(work: Callable[[Callable[[], None]], bool]) -> bool:
    """Run work in a child, which is stopped for longer than its limit when it calls its argument."""
    says, hears = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child uses no thread and no connection of ours
        child = os.fork()
    if child == 0:

        def stop() -> None:
            os.write(hears, b"x")
            sleep(0.2)
            until_the_watchdog_fired()

        try:
            os._exit(0 if work(stop) else 1)
        finally:
            os._exit(2)
    os.close(hears)
    assert os.read(says, 1) == b"x"
    os.kill(child, signal.SIGSTOP)
    sleep(LIMIT.total_seconds() + 0.3)
    os.kill(child, signal.SIGCONT)
    os.close(says)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_claim_that_succeeded_before_its_process_was_stopped_is_completed(vendor: str) -> None:
    call = a_call(claim_limit=LIMIT)

    def work(stop: Callable[[], None]) -> bool:
        with paused("INSERT INTO idempotency_key" if vendor == "postgresql" else "SET STATEMENT", stop) as pause:
            return run_call(call, Booking(call, using=ALIAS), ALIAS) == "booked" and pause.done

    assert in_a_stopped_child(work)
    assert (status_of(call), bookings(call)) == (Status.COMPLETED, 1)


def test_an_atomic_claim_is_rolled_back_and_the_key_is_free() -> None:
    """Its connection is cut inside the transaction."""
    call = a_call(mode="atomic", claim_limit=timedelta(seconds=0.2))
    work = Booking(call, using=ALIAS)
    with paused("SELECT gate", until_the_watchdog_fired) as pause, pytest.raises(StoreUnavailable):
        run_call(call, work, ALIAS)
    assert (pause.done, work.runs) == (True, 0)
    assert not IdempotencyKey.objects.filter(id=call.id).exists()
    assert run_call(call, Booking(call)) == "booked"


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_completion_whose_connection_was_cut_before_its_commit_says_so(mode: str) -> None:
    call = a_call(mode=mode, claim_limit=timedelta(seconds=0.2))
    work = Booking(call, using=ALIAS)
    beginning = "UPDATE" if mode == "leased" else "INSERT INTO idempotency_key"
    with paused(beginning, until_the_watchdog_fired) as pause, pytest.raises(Exception):  # noqa: B017, PT011
        run_call(call, work, ALIAS)
    assert (pause.done, bookings(call)) == (True, 0)


def land_in_the_meantime(told_by: str) -> None:
    """The lease expires, and the row that the owner has written is rolled back; then it is found out that it landed."""
    until_the_watchdog_fired()
    with another_alias(ALIAS):
        record = IdempotencyKey.objects.using(ALIAS).get()
        IdempotencyKey.objects.using(ALIAS).update(locked_until=LONG_AGO)
        assert lapse(Ref(record.scope, record.id, ALIAS))
        if told_by == "reconciler":
            assert reconcile_one(record.id, ALIAS) is Outcome.LANDED
        else:
            assert resolve(record.id, Landed(THEIRS), by="provider", using=ALIAS) is Outcome.LANDED


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize("told_by", ["reconciler", "webhook"])
def test_a_response_that_was_rolled_back_is_not_sent_beside_the_one_that_landed(told_by: str, settings: Any) -> None:
    """The reconciler lands while the owner stands still at its COMMIT: both have one token."""

    @reconciler("tests.paused")
    def ask(record: IdempotencyKey) -> Verdict:
        return Landed(THEIRS)

    @idempotent(
        operation="tests.paused",
        transaction="late",
        share_anonymous=True,
        claim_limit=timedelta(seconds=0.2),
    )
    def view(request: IdempotentRequest) -> HttpResponse:
        with connection.execute_wrapper(Pause("UPDATE", partial(land_in_the_meantime, told_by))):
            return request.idempotency.finish(lambda: JsonResponse({"id": "ours"}, status=201))

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view)]})
    told = [Client().post("/it", headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert [(each.status_code, each.content) for each in told] == [(THEIRS.status, THEIRS.body)] * 2


def test_a_connection_that_was_cut_too_late_is_not_used_again() -> None:
    with another_alias(ALIAS):
        with limits.limited(ALIAS, 0.1):
            assert IdempotencyKey.objects.using(ALIAS).count() == 0
            until_the_watchdog_fired()
        assert IdempotencyKey.objects.using(ALIAS).count() == 0
