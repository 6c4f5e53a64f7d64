"""Signals: sent after the change is committed, under no deadline, and unable to break a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.dispatch import Signal

from django_idempotency import Status, signals
from django_idempotency.exceptions import LostFence, NotExecuted, StoreUnavailable
from django_idempotency.flow.claim import begin, lapse
from django_idempotency.flow.finish import fail, finish, release
from django_idempotency.store.watchdog import WATCHDOG
from tests.kit.calls import Booking, a_call, claimed, heard, refused
from tests.kit.databases import in_transaction
from tests.kit.records import age, status_of

ALL = {name: value for name, value in vars(signals).items() if isinstance(value, Signal)}


def finished() -> None:
    call = a_call()
    finish(claimed(call), Booking(call))


def released() -> None:
    release(claimed(a_call()), "why")


def retried() -> None:
    call = a_call()
    fail(claimed(call), NotExecuted())
    claimed(call)


def renewed() -> None:
    call = a_call()
    finish(claimed(call), Booking(call))
    age(call, "expires_at")
    claimed(call)


def refused_expired() -> None:
    call = a_call(after_expiry="gone", expiry="soft")
    finish(claimed(call), Booking(call))
    age(call, "expires_at")
    refused(call)


def taken_over() -> None:
    call = a_call(on_lost_lease="restart")
    claimed(call)
    age(call, "locked_until")
    claimed(call)


def replayed() -> None:
    call = a_call()
    finish(claimed(call), Booking(call))
    refused(call)


def in_flight() -> None:
    call = a_call()
    claimed(call)
    refused(call)


def misused() -> None:
    call = a_call()
    claimed(call)
    refused(a_call(call.key, body=b"other"))


def doubted() -> None:
    fail(claimed(a_call()), RuntimeError())


def in_doubt() -> None:
    call = a_call()
    fail(claimed(call), RuntimeError())
    refused(call)


def fence_lost() -> None:
    call = a_call(on_lost_lease="restart")
    slow = claimed(call)
    age(call, "locked_until")
    claimed(call)
    with pytest.raises(LostFence):
        finish(slow, Booking(call))


def lease_lapsed() -> None:
    call = a_call()
    claimed(call)
    age(call, "locked_until")
    refused(call)


CAUSES: dict[str, Callable[[], None]] = {
    "reserved": finished,
    "retried": retried,
    "renewed": renewed,
    "taken_over": taken_over,
    "replayed": replayed,
    "in_flight": in_flight,
    "misused": misused,
    "in_doubt": in_doubt,
    "refused_expired": refused_expired,
    "completed": finished,
    "released": released,
    "doubted": doubted,
    "fence_lost": fence_lost,
    "lease_lapsed": lease_lapsed,
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", CAUSES)
def test_the_reference_names_what_a_receiver_gets(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "signals.md"
    row = next(line for line in page.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    with heard(ALL[name]) as brought:
        CAUSES[name]()
    assert set(brought[0]) - {"signal", "using"} == set(re.findall(r"`(\w+)`", row.split("|")[2]))


def explode() -> None:
    raise RuntimeError("the receiver is broken")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", CAUSES)
def test_a_receiver_hears_of_what_is_committed_and_is_under_no_deadline(name: str) -> None:
    seen: list[tuple[bool, bool]] = []
    with heard(ALL[name], lambda: seen.append((in_transaction(), bool(WATCHDOG._guarded)))) as brought:
        CAUSES[name]()
    assert seen == [(False, False)]
    assert brought[0]["using"] == "default"


@pytest.mark.django_db
@pytest.mark.parametrize("name", CAUSES)
def test_a_receiver_that_raises_is_logged_and_changes_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with heard(ALL[name], explode) as brought:
        CAUSES[name]()
    assert len(brought) == 1
    assert "the receiver is broken" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_sweeper_that_finds_a_lost_lease_says_so_once() -> None:
    call = a_call()
    claimed(call)
    age(call, "locked_until")
    with heard(signals.lease_lapsed) as brought:
        assert lapse(call.ref("default"))
        assert not lapse(call.ref("default"))
    assert [each["record"] for each in brought] == [call.id]
    assert status_of(call) is Status.UNKNOWN


@pytest.mark.django_db(transaction=True)
def test_a_store_that_fails_is_announced_with_its_error() -> None:
    def broken(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise OperationalError("disk full")

    with heard(signals.store_failed) as brought, connection.execute_wrapper(broken), pytest.raises(StoreUnavailable):
        begin(a_call())
    assert [str(each["error"].__cause__) for each in brought] == ["disk full"]
