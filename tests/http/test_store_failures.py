"""The store fails around a view: the client gets the layer's own response, which says what is known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import Status
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from testproject.payments.models import LedgerEntry
from tests.kit.calls import BOOKED
from tests.kit.proxy import ALIAS, Proxy, Theft

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

PAID = "paid"
SHORT = timedelta(seconds=1)


def book() -> None:
    LedgerEntry.objects.using(ALIAS).create(reference=PAID, account="cash", amount=700)


def post(view: Any, settings: Any, key: str) -> Any:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    return Client(raise_request_exception=False).post("/it", headers={"Idempotency-Key": key})


def entries() -> int:
    return LedgerEntry.objects.using("default").filter(reference=PAID).count()


def row() -> IdempotencyKey | None:
    return IdempotencyKey.objects.using("default").first()


# Atomic mode


@pytest.mark.parametrize("theft", [Theft.MESSAGE, Theft.ANSWER, Theft.SILENCE], ids=lambda each: each.name)
def test_an_atomic_replay_needs_no_commit(theft: Theft, proxy: Proxy, settings: Any) -> None:
    @idempotent(mode="atomic", share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        book()
        return HttpResponse(PAID, status=201)

    key = str(uuid4())
    assert post(pay, settings, key).status_code == 201
    proxy.steal(b"COMMIT", theft)
    again = post(pay, settings, key)
    assert proxy.stolen.is_set()
    assert (again.status_code, again["Idempotency-Replayed"], entries()) == (201, "true", 1)
    assert post(pay, settings, key).status_code == 201


def test_an_atomic_conflict_needs_no_commit(proxy: Proxy, settings: Any) -> None:
    @idempotent(operation="pay", share_anonymous=True, transaction="late")
    def leased(request: Any) -> HttpResponse:
        raise RuntimeError

    @idempotent(operation="pay", mode="atomic", share_anonymous=True)
    def pay(request: Any) -> HttpResponse:
        raise AssertionError

    key = str(uuid4())
    assert post(leased, settings, key).status_code == 500
    proxy.steal(b"COMMIT", Theft.MESSAGE)
    again = post(pay, settings, key)
    assert proxy.stolen.is_set()
    assert (again.status_code, again.json()["code"]) == (409, "idempotency_outcome_unknown")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_atomic_view_whose_connection_was_cut_before_its_commit_is_free(
    moment: str, proxy: Proxy, settings: Any
) -> None:
    runs = []

    @idempotent(mode="atomic", share_anonymous=True)
    def pay(request: Any) -> HttpResponse:
        runs.append(1)
        if len(runs) == 1 and moment == "before":
            proxy.reset()
        book()
        if len(runs) == 1 and moment == "after":
            proxy.reset()
        return HttpResponse(PAID, status=201)

    key = str(uuid4())
    first = post(pay, settings, key)
    assert (first.status_code, entries(), row()) == (503, 0, None), first.content
    assert first["Retry-After"]
    assert (post(pay, settings, key).status_code, entries()) == (201, 1)


# Leased mode


@pytest.mark.parametrize("mode", ["leased", "atomic"])
@pytest.mark.parametrize("raised", [PermissionDenied(), NotExecuted()], ids=["a refusal", "a proof"])
def test_a_store_that_goes_away_before_a_rollback_is_no_error_of_the_view(
    raised: Exception, mode: str, proxy: Proxy, settings: Any
) -> None:
    """In atomic mode it is known that nothing is left; in leased mode the record says so later."""

    @idempotent(mode=mode, share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        book()
        proxy.close()
        raise raised

    first = post(pay, settings, str(uuid4()))
    code = "idempotency_outcome_unknown" if mode == "leased" else "idempotency_store_unavailable"
    assert (first.json()["code"], entries()) == (code, 0)


def test_a_store_that_is_away_after_the_charge_is_an_unknown_outcome(proxy: Proxy, settings: Any) -> None:
    @idempotent(transaction="late", share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        proxy.close()

        def write() -> HttpResponse:
            book()
            return HttpResponse(PAID, status=201)

        response: HttpResponse = request.idempotency.finish(write)
        return response

    first = post(pay, settings, str(uuid4()))
    assert (first.status_code, first.json()["safe_new_key"]) == (409, False)
    assert first.json()["code"] == "idempotency_outcome_unknown"


def test_a_store_that_goes_away_during_the_writes_is_an_unknown_outcome(proxy: Proxy, settings: Any) -> None:
    @idempotent(transaction="late", share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        def write() -> HttpResponse:
            book()
            proxy.close()
            book()
            return HttpResponse(PAID, status=201)

        response: HttpResponse = request.idempotency.finish(write)
        return response

    first = post(pay, settings, str(uuid4()))
    assert (first.status_code, first.json()["safe_new_key"], entries()) == (409, False, 0)


def test_the_first_client_is_not_told_that_its_own_request_is_running(proxy: Proxy, settings: Any) -> None:
    """The COMMIT was lost, the doubt could not be written, and the record can be read."""

    @idempotent(transaction="late", share_anonymous=True, claim_limit=SHORT)
    def pay(request: Any) -> HttpResponse:
        def write() -> HttpResponse:
            book()
            proxy.steal(b"COMMIT", Theft.MESSAGE)
            return HttpResponse(PAID, status=201)

        # Whenever something was stolen, the next UPDATE is stolen too: no doubt can be written.
        proxy.stolen.set = lambda: proxy.steal(b"UPDATE", Theft.MESSAGE)  # type: ignore[method-assign]
        response: HttpResponse = request.idempotency.finish(write)
        return response

    first = post(pay, settings, str(uuid4()))
    found = row()
    assert found is not None
    assert found.status == Status.IN_PROGRESS
    assert (first.status_code, first.json()["code"]) == (409, "idempotency_outcome_unknown")
    assert first.json()["safe_new_key"] is False


# Operations


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize("theft", [Theft.MESSAGE, Theft.ANSWER], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("moment", "statement"),
    [
        ("begin", b"UPDATE"), ("read", b"SELECT"), ("phase", b"INSERT"), ("mark of a phase", b"UPDATE"),
        ("phase", b"COMMIT"), ("mark before an effect", b"UPDATE"), ("mark after an effect", b"UPDATE"),
    ],
)  # fmt: skip
def test_a_connection_lost_in_an_operation_is_answered_and_resumed(
    moment: str, statement: bytes, theft: Theft, proxy: Proxy, settings: Any
) -> None:
    charges: list[str] = []
    armed = [moment]

    def arm(now: str) -> None:
        if armed and armed[0] == now:
            armed.clear()
            proxy.steal(statement, theft)

    def charge(key: str) -> str:
        charges.append(key)
        arm("mark after an effect")
        return "charged"

    def phase() -> None:
        arm("phase")
        book()
        arm("mark of a phase")

    @operation("lossy")
    def lossy(op: Op) -> Any:
        op.phase("booked", phase)
        arm("mark before an effect")
        op.effect("charged", charge, in_doubt="repeat")
        return BOOKED

    @idempotent(transaction="late", share_anonymous=True, on_lost_lease="resume")
    def pay(request: Any) -> HttpResponse:
        arm("begin" if not runs else "read")
        runs.append(1)
        if moment == "read" and len(runs) == 1:
            raise RuntimeError
        response: HttpResponse = request.idempotency.run(lossy)
        return response

    runs: list[int] = []
    key = str(uuid4())
    answers = [post(pay, settings, key) for _ in range(3)]
    statuses = [each.status_code for each in answers if each.status_code != 500 or moment != "read"]
    assert set(statuses) <= {201, 409}, [each.content[:200] for each in answers]
    assert all(each.json()["code"] == "idempotency_outcome_unknown" for each in answers if each.status_code == 409)
    found = row()
    assert found is not None
    assert answers[-1].status_code == 201
    assert (found.status, entries(), len(set(charges))) == (Status.COMPLETED, 1, 1)
