"""A crash in the test's process leaves what a killed process leaves, and nothing but the test survives it."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection

from django_idempotency import Status, json_reply
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.once import once
from django_idempotency.reconciliation import Landed, NotLanded, resolve
from django_idempotency.testing import (
    AsyncIdempotentClient,
    Crash,
    IdempotentClient,
    assert_refused,
    assert_replayed,
    crash_at,
    grace_over,
    lease_over,
    retention_over,
    unknown,
)
from testproject.payments.models import LedgerEntry
from tests.testing import home_made

pytestmark = pytest.mark.vendor

in_each_kind_of_test = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(False, marks=pytest.mark.django_db),
        pytest.param(True, marks=pytest.mark.django_db(transaction=True)),
    ],
)
POINTS: list[dict[str, Any]] = [
    {"point": "claim"},
    {"point": "view"},
    {"point": "commit"},
    {"point": "commit", "landed": True},
    {"point": "answer"},
]
STORED = POINTS[3:]


def post(client: Any, name: str) -> Any:
    return client.post(f"/{name}", {"amount": 5}, "application/json")


@pytest.mark.parametrize("where", POINTS, ids=str)
@pytest.mark.parametrize("name", ["leased", "called", "async", "rest", "ninja/order"])
def test_a_leased_request_is_cut_off(name: str, where: dict[str, Any], alice: IdempotentClient) -> None:
    require_a_cut(name, where, alice)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("where", POINTS, ids=str)
@pytest.mark.parametrize("name", ["called", "async"])
def test_a_leased_request_is_cut_off_that_commits(name: str, where: dict[str, Any], alice: IdempotentClient) -> None:
    require_a_cut(name, where, alice)


def require_a_cut(name: str, where: dict[str, Any], alice: IdempotentClient) -> None:
    with crash_at(**where) as crashed:
        post(alice, name)
    record = crashed.record
    assert record is not None
    assert record.key == alice.last_key
    assert not IdempotencyEvent.objects.exists()  # a dead process does not say that it is dead
    if where in STORED:
        assert (record.status, LedgerEntry.objects.count()) == (Status.COMPLETED, 1)
        assert_replayed(alice.repeat())
    else:
        assert (record.status, LedgerEntry.objects.count()) == (Status.IN_PROGRESS, 0)
        assert_refused(alice.repeat(), "idempotency_key_in_progress")
        lease_over(record)
        assert_refused(alice.repeat(), "idempotency_outcome_unknown")
    assert LedgerEntry.objects.count() == (where in STORED)


@in_each_kind_of_test
@pytest.mark.parametrize("where", POINTS, ids=str)
@pytest.mark.parametrize("name", ["atomic"])
def test_an_atomic_request_leaves_all_or_nothing(
    name: str, where: dict[str, Any], kind: bool, alice: IdempotentClient
) -> None:
    with crash_at(**where) as crashed:
        post(alice, name)
    assert (crashed.record is not None, LedgerEntry.objects.count()) == (where in STORED, where in STORED)
    again = alice.repeat()
    assert again.status_code == 201
    assert ("Idempotency-Replayed" in again.headers) == (where in STORED)
    assert LedgerEntry.objects.count() == 1


@in_each_kind_of_test
def test_an_external_call_was_made_before_the_crash(kind: bool, alice: IdempotentClient) -> None:
    with crash_at("claim"):
        post(alice, "called")
    assert home_made.PROVIDER.ledger == []
    with crash_at("view"):
        post(alice, "called")
    assert len(home_made.PROVIDER.ledger) == 1


@pytest.mark.django_db(transaction=True)
def test_an_async_client_crashes_as_well() -> None:
    user = User.objects.create_user("alice")

    async def crash() -> tuple[int, str | None]:
        client = AsyncIdempotentClient()
        await client.aforce_login(user)
        with crash_at("view"):
            await post(client, "async")
        return (await client.repeat()).status_code, client.last_key

    status, key = async_to_sync(crash)()
    assert (status, IdempotencyKey.objects.get(key=key).status) == (409, Status.IN_PROGRESS)


@pytest.mark.django_db
@pytest.mark.parametrize("where", POINTS, ids=str)
def test_work_without_a_request_crashes_as_well(where: dict[str, Any]) -> None:
    with crash_at(**where) as crashed:
        once(scope="testing", key="k", run=lambda claim: {})
    assert crashed.record is not None
    assert crashed.record.status == (Status.COMPLETED if where in STORED else Status.IN_PROGRESS)


@pytest.mark.django_db
def test_a_crash_that_did_not_happen_fails_the_test(alice: IdempotentClient) -> None:
    post(alice, "leased")
    with pytest.raises(AssertionError, match="answered earlier"), crash_at("view"):
        alice.repeat()


@pytest.mark.django_db
def test_code_that_survives_its_own_death_fails_the_test(alice: IdempotentClient) -> None:
    def send() -> None:
        try:
            post(alice, "leased")
        except BaseException:  # noqa: BLE001 - what the helper has to find
            return

    with pytest.raises(AssertionError, match="BaseException"), crash_at("view"):
        send()


@pytest.mark.django_db
def test_a_dead_process_reaches_no_database(alice: IdempotentClient) -> None:
    wrappers = list(connection.execute_wrappers)

    def send() -> None:
        try:
            post(alice, "leased")
        finally:
            LedgerEntry.objects.create(reference="late", account="cash", amount=1)

    with crash_at("claim"):
        send()
    assert LedgerEntry.objects.count() == 0
    assert connection.execute_wrappers == wrappers


def test_a_crash_is_no_exception() -> None:
    assert not issubclass(Crash, Exception)


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="claim, view, commit, answer"), crash_at("later"):  # type: ignore[arg-type] # the mistake
        pass


def test_only_a_commit_lands() -> None:
    with pytest.raises(ValueError, match="COMMIT"), crash_at("view", landed=True):
        pass


@pytest.mark.django_db
def test_a_second_attempt_crashes_as_well(alice: IdempotentClient) -> None:
    post(alice, "leased")
    retention_over(IdempotencyKey.objects.get())
    with crash_at("claim") as crashed:
        alice.repeat()
    assert crashed.record is not None
    assert crashed.record.status == Status.IN_PROGRESS


@pytest.mark.django_db
@pytest.mark.parametrize("landed", [True, False])
def test_an_unknown_outcome_is_settled(alice: IdempotentClient, landed: bool) -> None:
    record = unknown(lambda: post(alice, "called"))
    assert record.status == Status.UNKNOWN
    assert_refused(alice.repeat(), "idempotency_outcome_unknown")
    grace_over(record)
    verdict: Any = Landed(json_reply(201, {"id": 7})) if landed else NotLanded()
    resolve(record.id, verdict, by="test", reason="seen", operator=True)
    again = alice.repeat()
    assert again.status_code == 201
    assert ("Idempotency-Replayed" in again.headers) is landed
    assert len(home_made.PROVIDER.ledger) == 1  # the derived key is the same


@pytest.mark.django_db
def test_a_record_in_progress_becomes_unknown_and_no_other(alice: IdempotentClient) -> None:
    with crash_at("claim") as crashed:
        post(alice, "leased")
    assert crashed.record is not None
    assert unknown(crashed.record).status == Status.UNKNOWN
    post(alice, "leased")
    with pytest.raises(ValueError, match="completed"):
        unknown(IdempotencyKey.objects.get(key=alice.last_key))
    with pytest.raises(ValueError, match="atomic mode"):
        unknown(lambda: post(alice, "atomic"))
