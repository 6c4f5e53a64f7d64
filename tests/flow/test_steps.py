"""An operation that is cut anywhere ends with every step done once."""

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_idempotency import Reply, json_reply, signals
from django_idempotency.core.decisions import InDoubt
from django_idempotency.core.progress import Progress
from django_idempotency.exceptions import (
    ChangedDefinition,
    DuplicateStep,
    InsideTransaction,
    LostFence,
    UnknownOperation,
)
from django_idempotency.flow import claim, registry, steps
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.store import operations
from testproject.payments.models import LedgerEntry, Receipt
from tests.kit.calls import heard
from tests.kit.rides import POINTS, Killed, World, a_call, book, cautious, claimed, lease_over, resume, ride, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("world"), pytest.mark.vendor]


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_goes_on_where_the_process_was_killed(world: World, point: str) -> None:
    key = str(uuid4())
    world.kill_at = point
    with pytest.raises(Killed):
        run(claimed(key), ride, user=7)
    lease_over()

    again = claimed(key)
    assert again.repeat
    reply = run(again, ride, user=7)

    record = IdempotencyKey.objects.get()
    assert sorted(LedgerEntry.objects.values_list("reference", flat=True)) == ["booked", "receipt"]
    assert set(world.sent) == {record.derive("charged")}, "whatever was sent twice was sent with one key"
    assert len(world.sent) == (2 if point == "after the charge" else 1)
    assert reply == json_reply(201, {"user": 7, "first": "booked", "charge": f"ch_{record.derive('charged')}"})
    assert (record.status, record.recovery_point) == ("completed", "receipt")


@pytest.mark.parametrize("point", ["before the charge", "after the charge"])
def test_an_effect_that_must_not_be_repeated_leaves_the_record_in_doubt(world: World, point: str) -> None:
    key = str(uuid4())
    world.kill_at = point
    with pytest.raises(Killed):
        run(claimed(key), cautious)
    lease_over()

    assert isinstance(claim.begin(a_call(key)), InDoubt)
    assert len(world.sent) == (1 if point == "after the charge" else 0)


def test_the_first_run_gets_the_results_that_a_later_one_gets(world: World) -> None:
    """Else the same code would take another way after a crash."""
    op = Op(claimed(str(uuid4())), Progress(), 0)
    assert op.phase("numbered", lambda: {1: (2,)}) == {"1": [2]}
    assert op.effect("charged", lambda _key: ("ch_1", None), in_doubt="repeat") == ["ch_1", None]


def test_a_step_costs_at_most_two_statements_of_its_own(world: World) -> None:
    attempt = claimed(str(uuid4()))
    with CaptureQueriesContext(connection) as queries:
        run(attempt, ride, user=1)
    ours = [q["sql"] for q in queries if "idempotency_key" in q["sql"]]
    assert len(ours) == 1 + (1 + 2 + 1) + 1, "begin, a phase, an effect, a phase, the completion"


def test_an_attempt_that_was_taken_over_does_nothing_more(world: World) -> None:
    key = str(uuid4())
    slow = claimed(key)
    operations.begin_operation(
        slow.ref, slow.token, operations.StoredOperation("tests.ride", "{}", Progress().dump(), 0)
    )
    op = Op(slow, Progress(), 0)
    lease_over()
    claimed(key)
    with pytest.raises(LostFence):
        op.phase("booked", book, "booked")
    with pytest.raises(LostFence):
        op.effect("charged", world.charge, in_doubt="repeat")
    assert (LedgerEntry.objects.count(), world.sent) == (0, [])


@pytest.mark.parametrize(
    ("recorded", "now", "said"),
    [(["booked"], "paid", "was 'booked' and is 'paid' now"), (["booked"], "booked twice", "was 'booked'")],
)
def test_a_changed_definition_is_refused(recorded: list[str], now: str, said: str) -> None:
    progress = Progress()
    for name in recorded:
        progress = progress.mark_done(name, None)
    with pytest.raises(ChangedDefinition, match=said):
        Op(claimed(str(uuid4())), progress, len(recorded)).phase(now, book, "x")
    assert not LedgerEntry.objects.exists()


def test_a_step_that_comes_twice_is_refused() -> None:
    attempt = claimed(str(uuid4()))

    @operation(f"tests.twice.{uuid4()}")
    def twice(op: Op) -> Reply:
        op.phase("booked", book, "one")
        op.phase("booked", book, "two")
        return json_reply(201, {})

    with pytest.raises(DuplicateStep, match="twice"):
        steps.run_steps(attempt, twice, {})


def test_older_code_does_not_go_on_with_what_newer_code_began() -> None:
    key = str(uuid4())
    attempt = claimed(key)
    newer = Progress(version=2).dump()
    operations.begin_operation(attempt.ref, attempt.token, operations.StoredOperation("tests.ride", "{}", newer, 0))
    with pytest.raises(ChangedDefinition, match="version 2"):
        resume(attempt)


def test_a_phase_that_fails_at_its_commit_was_not_done(world: World, vendor: str) -> None:
    """There deferred constraints are checked, after the mark."""
    if vendor == "mysql":
        pytest.skip("it checks every constraint at once")
    op = Op(claimed(str(uuid4())), Progress(), 0)
    with pytest.raises(IntegrityError):
        op.phase("receipt", lambda: Receipt.objects.create(ride_id=999_999).pk)
    assert op.phase("booked", book, "booked") == "booked"
    op.end()
    assert Progress.load(IdempotencyKey.objects.get().progress).finished == ["booked"]


def test_that_another_attempt_has_the_record_is_told(world: World) -> None:
    key = str(uuid4())
    slow = claimed(key)
    op = Op(slow, Progress(), 0)
    lease_over()
    claimed(key)
    with heard(signals.fence_lost) as lost, pytest.raises(LostFence):
        op.phase("booked", book, "booked")
    with heard(signals.fence_lost) as lost_again, pytest.raises(LostFence):
        op.progress(1, 2)
    assert [each["call"] for each in (*lost, *lost_again)] == [slow.call] * 2


def test_who_takes_a_record_over_says_that_its_lease_ran_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    key = str(uuid4())
    claimed(key)
    lease_over()
    claimed(key)
    assert "The lease of an operation expired" in caplog.text
    assert f"Idempotency record {a_call(key).id}." in caplog.text


@pytest.mark.parametrize(("name", "version"), [("tests.of_another_release", 1), ("tests.ride", 2)])
def test_a_retry_that_meets_older_code_takes_nothing_over(name: str, version: int) -> None:
    """Each try would cost the operation one of its attempts, while newer code could end it."""
    key = str(uuid4())
    attempt = claimed(key)
    newer = operations.StoredOperation(name, "{}", Progress(version).dump(), 0)
    assert operations.begin_operation(attempt.ref, attempt.token, newer)
    lease_over()
    assert isinstance(claim.begin(a_call(key)), InDoubt)
    assert IdempotencyKey.objects.get().attempts == 1


def test_what_newer_code_did_a_step_of_is_newer_work(world: World) -> None:
    @operation(f"tests.newer.{uuid4()}", version=3)
    def newer(op: Op) -> Reply:
        op.phase("booked", book, "booked")
        raise TimeoutError

    attempt = claimed(str(uuid4()))
    begun = operations.StoredOperation(registry.operation_of(newer).name, "{}", Progress(1).dump(), 0)
    assert operations.begin_operation(attempt.ref, attempt.token, begun)
    with pytest.raises(TimeoutError):
        resume(attempt)
    assert Progress.load(IdempotencyKey.objects.get().progress).version == 3


def test_a_phase_may_tell_its_progress(world: World) -> None:
    op = Op(claimed(str(uuid4())), Progress(), 0)
    op.phase("paged", lambda: op.progress(7, 10))
    assert Progress.load(IdempotencyKey.objects.get().progress).extent == (7, 10)


UNFIT = [timedelta(hours=1) / 7, timedelta(0), timedelta(seconds=-5), timedelta(days=36500), 3600, None]


@pytest.mark.parametrize("longest", UNFIT, ids=repr)
def test_a_time_that_no_attempt_could_have_is_refused_where_it_is_written(longest: Any) -> None:
    with pytest.raises(ValueError, match="longest must"):
        operation("tests.timed", longest=longest)


def test_what_is_not_registered_is_named() -> None:
    with pytest.raises(UnknownOperation, match="decorate it"):
        steps.run_steps(claimed(str(uuid4())), partial(book, "x"), {})  # type: ignore[arg-type]
    with pytest.raises(UnknownOperation, match=r"tests\.ride"):
        registry.get_operation("tests.nothing")
    with pytest.raises(ValueError, match="already"):
        operation("tests.ride")(cautious)


def test_an_effect_in_a_transaction_is_refused(world: World) -> None:
    op = Op(claimed(str(uuid4())), Progress(), 0)
    with transaction.atomic(), pytest.raises(InsideTransaction):
        op.effect("charged", world.charge, in_doubt="repeat")
    with pytest.raises(ValueError, match="in_doubt"):
        op.effect("charged", world.charge, in_doubt="whatever")  # type: ignore[arg-type]
    assert world.sent == []


def test_a_phase_in_a_phase_is_refused() -> None:
    """Whoever goes on would not come by the inner one, and find another step there."""
    op = Op(claimed(str(uuid4())), Progress(), 0)
    with pytest.raises(InsideTransaction, match="'inner' is inside another"):
        op.phase("outer", lambda: op.phase("inner", book, "inner"))
    assert not LedgerEntry.objects.exists()
    assert op.phase("outer", book, "outer") == "outer"
    assert op.phase("then", book, "then") == "then"
