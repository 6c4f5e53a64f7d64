"""How many statements each path costs beyond the handler's own.

| request            | PostgreSQL, MariaDB | SQLite | transaction           |
| leased, new key    | 2                   | 3      | the handler's own     |
| atomic, new key    | 2                   | 2      | the handler's own     |
| leased, any answer | 2                   | 1      | none                  |
| atomic, any answer | 1                   | 1      | one BEGIN, one COMMIT |

A mismatch reads two statements more, and its event is one more in a transaction of its own, up to five a record.

MariaDB adds a savepoint and its release to each new key, which prove that the handler's transaction is the one that
commits.

SQLite reads before it inserts, because an insert waits there behind any writer: a new key costs one statement more
and every other answer one less.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, transaction

from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Gone, InDoubt, InFlight, Mismatch, Replay
from django_idempotency.flow.finish import fail, finish
from django_idempotency.flow.run import run_call
from django_idempotency.store.events import MOST_MISMATCHES
from tests.kit.calls import BOOKED, a_call, claimed, handler
from tests.kit.counting import Counts, counted
from tests.kit.databases import another_alias
from tests.kit.records import age

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

BOUND = "bound_on_the_server"


@pytest.fixture(params=["default", BOUND])
def alias(request: pytest.FixtureRequest, vendor: str) -> Iterator[str]:
    """The database as it is configured, and with parameters bound by the server."""
    if request.param == "default":
        yield "default"
        return
    if vendor != "postgresql":
        pytest.skip("server-side binding is PostgreSQL's")
    with another_alias(BOUND, OPTIONS={**connection.settings_dict["OPTIONS"], "server_side_binding": True}):
        yield BOUND


@pytest.fixture
def answered(vendor: str) -> int:
    """What any answer costs in leased mode."""
    return 1 if vendor == "sqlite" else 2


def bare(alias: str) -> Counts:
    """The handler alone, in a transaction of its own."""

    def handle() -> None:
        with transaction.atomic(using=alias):
            handler(a_call(), alias)(None)

    return counted(handle, alias)


def cost(call: Call, alias: str) -> Counts:
    return counted(lambda: run_call(call, handler(call, alias), alias), alias)


def expect(found: Counts, *, plain: int, transactions: int = 0, savepoint: int = 0) -> None:
    assert found.numbers() == (plain, transactions, transactions, savepoint), str(found)


@pytest.fixture
def proof(vendor: str) -> int:
    """What it costs to prove that the transaction is the one that began."""
    return 2 if vendor == "mysql" else 0


def test_the_handler_alone(alias: str) -> None:
    expect(bare(alias), plain=1, transactions=1)


def test_a_new_key_leased(alias: str, vendor: str, proof: int) -> None:
    expect(cost(a_call(), alias).beyond(bare(alias)), plain=3 if vendor == "sqlite" else 2, savepoint=proof)


def test_a_new_key_atomic(alias: str, proof: int) -> None:
    expect(cost(a_call(mode="atomic"), alias).beyond(bare(alias)), plain=2, savepoint=proof)


def test_a_replay(alias: str, answered: int) -> None:
    call = a_call()
    run_call(call, handler(call, alias), alias)
    assert isinstance(run_call(call, handler(call, alias), alias), Replay)
    expect(cost(call, alias), plain=answered)


def test_a_mismatch(alias: str, answered: int) -> None:
    call = a_call()
    run_call(call, handler(call, alias), alias)
    other = a_call(call.key, body=b"other")
    assert isinstance(run_call(other, handler(other, alias), alias), Mismatch)
    expect(cost(other, alias), plain=answered + 3, transactions=1)
    for _ in range(MOST_MISMATCHES):
        run_call(other, handler(other, alias), alias)
    expect(cost(other, alias), plain=answered + 2)


def test_a_request_in_flight(alias: str, answered: int) -> None:
    call = a_call()
    claimed(call)
    assert isinstance(run_call(call, handler(call, alias), alias), InFlight)
    expect(cost(call, alias), plain=answered)


def test_a_doubt(alias: str, answered: int) -> None:
    call = a_call()
    fail(claimed(call), RuntimeError())
    assert isinstance(run_call(call, handler(call, alias), alias), InDoubt)
    expect(cost(call, alias), plain=answered)


def test_an_expired_key_that_is_refused(alias: str, answered: int) -> None:
    call = a_call(after_expiry="gone", expiry="soft")
    finish(claimed(call), lambda: (None, BOOKED))
    age(call, "expires_at")
    assert isinstance(run_call(call, handler(call, alias), alias), Gone)
    expect(cost(call, alias), plain=answered)


def test_an_answer_in_atomic_mode(alias: str) -> None:
    call = a_call(mode="atomic")
    run_call(call, handler(call, alias), alias)
    assert isinstance(run_call(call, handler(call, alias), alias), Replay)
    expect(cost(call, alias), plain=1, transactions=1)
