"""A deadlock on MariaDB rolls the whole transaction back, also if the view catches the error and returns a response."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import Status
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import OutcomeUnknown
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.resolve import resolve
from django_idempotency.flow.settle import Landed
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from testproject.payments.models import LedgerEntry
from tests.kit.calls import BOOKED, a_call, claimed
from tests.kit.databases import elsewhere, running, somebody_waits_for_a_lock
from tests.kit.http import same_answer
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

PAID = "paid"


def raw(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE payments_ledgerentry SET amount = amount + 1 WHERE id = %s", [pk])


def orm(pk: int) -> None:
    LedgerEntry.objects.filter(pk=pk).update(amount=2)


def inner_atomic(pk: int) -> None:
    with transaction.atomic():
        raw(pk)


@contextmanager
def caught() -> Iterator[None]:
    with suppress(OperationalError):
        yield


@contextmanager
def raised() -> Iterator[None]:
    yield


class Crossing:
    """Two rows, and a rival that holds the one and wants the other: the first payment is the victim of a deadlock."""

    def __init__(self, statement: Callable[[int], None], reaction: Callable[[], Any]) -> None:
        self.statement, self.reaction = statement, reaction
        self.mine, self.other = (LedgerEntry.objects.create(reference="x", account="cash", amount=0) for _ in range(2))
        self.holds_other, self.wants_mine = Event(), Event()
        self.runs = 0

    def rival(self) -> None:
        with transaction.atomic():
            # The victim is the transaction that wrote less.
            LedgerEntry.objects.bulk_create([LedgerEntry(reference="b", account="cash", amount=0) for _ in range(50)])
            orm(self.other.pk)
            self.holds_other.set()
            assert self.wants_mine.wait(60)
            orm(self.mine.pk)

    def pay(self) -> None:
        self.runs += 1
        LedgerEntry.objects.create(reference=PAID, account="cash", amount=700)
        orm(self.mine.pk)
        if self.runs == 1:
            self.wants_mine.set()
            wait_until(lambda: elsewhere(somebody_waits_for_a_lock))
        with self.reaction():
            self.statement(self.other.pk)

    @contextmanager
    def deadlock(self) -> Iterator[None]:
        with running("default", self.rival) as outcome:
            assert self.holds_other.wait(60)
            yield
            outcome.result(60)


@pytest.fixture(params=[raw, orm, inner_atomic], ids=lambda each: each.__name__)
def statement(request: pytest.FixtureRequest, vendor: str) -> Any:
    if vendor != "mysql":
        pytest.skip("elsewhere a transaction does not continue after a deadlock")
    return request.param


@pytest.fixture(params=[caught, raised], ids=lambda each: each.__name__)
def crossing(request: pytest.FixtureRequest, statement: Callable[[int], None]) -> Crossing:
    return Crossing(statement, request.param)


def payments() -> int:
    return LedgerEntry.objects.filter(reference=PAID).count()


def post(view: Any, settings: Any, key: str) -> Any:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    return Client(raise_request_exception=False).post("/it", headers={"Idempotency-Key": key})


def test_an_atomic_view_runs_again(crossing: Crossing, settings: Any) -> None:
    @idempotent(mode="atomic", share_anonymous=True)
    def pay(request: HttpRequest) -> HttpResponse:
        crossing.pay()
        return HttpResponse(PAID, status=201)

    key = str(uuid4())
    with crossing.deadlock():
        first = post(pay, settings, key)
    assert (first.status_code, payments(), crossing.runs) == (201, 1, 2), first.content
    assert same_answer(first, post(pay, settings, key))
    assert (payments(), crossing.runs) == (1, 2)


def test_a_whole_leased_view_has_an_unknown_outcome(crossing: Crossing, settings: Any) -> None:
    @idempotent(share_anonymous=True)
    def pay(request: HttpRequest) -> HttpResponse:
        crossing.pay()
        return HttpResponse(PAID, status=201)

    with crossing.deadlock():
        first = post(pay, settings, str(uuid4()))
    assert (IdempotencyKey.objects.get().status, payments(), crossing.runs) == (Status.UNKNOWN, 0, 1)
    if crossing.reaction is raised:
        assert first.status_code == 500, "the view's own exception"
    else:
        assert (first.status_code, first.json()["safe_new_key"]) == (409, False)


def test_the_writes_of_a_late_view_run_again(crossing: Crossing, settings: Any) -> None:
    @idempotent(transaction="late", share_anonymous=True)
    def pay(request: Any) -> HttpResponse:
        def write() -> HttpResponse:
            crossing.pay()
            return HttpResponse(PAID, status=201)

        response: HttpResponse = request.idempotency.finish(write)
        return response

    with crossing.deadlock():
        first = post(pay, settings, str(uuid4()))
    assert (first.status_code, payments(), crossing.runs) == (201, 1, 2), first.content
    assert IdempotencyKey.objects.get().status == Status.COMPLETED


@pytest.mark.usefixtures("registrations")
def test_a_phase_is_not_marked_without_its_writes(crossing: Crossing, settings: Any) -> None:
    @operation("crossing")
    def crossed(op: Op) -> Any:
        op.phase("pay", crossing.pay)
        return BOOKED

    @idempotent(transaction="late", share_anonymous=True, on_lost_lease="resume")
    def pay(request: Any) -> HttpResponse:
        response: HttpResponse = request.idempotency.run(crossed)
        return response

    with crossing.deadlock():
        first = post(pay, settings, str(uuid4()))
    row, answer = IdempotencyKey.objects.get(), 500 if crossing.reaction is raised else 409
    assert (first.status_code, row.status, row.recovery_point, payments()) == (answer, Status.UNKNOWN, "", 0), (
        first.content
    )


def test_a_verdict_is_not_stored_without_its_writes(crossing: Crossing) -> None:
    call = a_call()
    fail(claimed(call), RuntimeError())
    with crossing.deadlock():
        resolve(str(call.id), Landed(BOOKED, crossing.pay), by="provider")
    assert (IdempotencyKey.objects.get().status, payments(), crossing.runs) == (Status.COMPLETED, 1, 2)


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK", "CREATE TABLE idem_scratch (id INT)"])
def test_a_transaction_that_ended_by_other_means_is_not_completed(ending: str, vendor: str) -> None:
    """Whether its writes are there is not known, so nothing runs again."""
    if vendor != "mysql":
        pytest.skip("checked on MariaDB and MySQL only")
    call, runs = a_call(), []

    def work() -> Any:
        runs.append(1)
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS idem_scratch")
            cursor.execute(ending)
        return "booked", BOOKED

    attempt = claimed(call)
    with pytest.raises(OutcomeUnknown):
        finish(attempt, work, rerun=True)
    assert (len(runs), IdempotencyKey.objects.get().status) == (1, Status.UNKNOWN)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS idem_scratch")
