"""An effect that must not be repeated was cut in its middle: somebody finds out, and the operation goes on."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F

from django_idempotency import Reply, exceptions, json_reply, maintenance, reconciliation
from django_idempotency.core.decisions import InDoubt
from django_idempotency.core.progress import Progress
from django_idempotency.flow import claim, reconcile, steps
from django_idempotency.flow.finish import fail
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.reconciliation import (
    Inconclusive,
    Landed,
    NotLanded,
    Outcome,
    StepLanded,
    Verdict,
    reconciler,
    resolve,
)
from testproject.payments.models import LedgerEntry
from tests.kit.registrations import temporary_registrations
from tests.kit.rides import WORLD, Killed, World, a_call, book, claimed, lease_over, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("world"), pytest.mark.vendor]

NAME = "tests.careful"
Ask = Callable[[IdempotencyKey, str], Verdict]


@operation(NAME)
def careful(op: Op, *, refused: bool = False) -> Reply:
    op.phase("booked", book, "booked")
    charge = op.effect("charged", WORLD.charge, in_doubt="reconcile")
    op.phase("receipt", book, "receipt")
    return json_reply(402 if refused else 201, {"charge": charge})


@pytest.fixture
def answering(registrations: None) -> Callable[[Ask], None]:
    """Say what the step's reconciler does."""
    asks: list[Ask] = []
    reconciler(NAME, step="charged")(lambda record, key: asks[-1](record, key))
    return asks.append


def cut(at: str, **arguments: Any) -> str:
    """The process was killed in the middle of the charge; nobody noticed for longer than grace. Answers the key."""
    key = str(uuid4())
    WORLD.kill_at = at
    with pytest.raises(Killed):
        run(claimed(key), careful, **arguments)
    lease_over()
    assert maintenance.sweep() == {"unknown": 1}
    IdempotencyKey.objects.update(grace_until=F("created_at") - timedelta(hours=1))
    assert maintenance.resume() == {}, "nothing is sent before somebody knows"
    return key


def retried(key: str, **arguments: Any) -> None:
    run(claimed(key), careful, **arguments)


def resumed(key: str, **arguments: Any) -> None:
    assert maintenance.resume() == {"landed": 1}


def told(world: World) -> Ask:
    """What the other side says: whether it ever saw the key."""
    return lambda record, key: StepLanded(f"ch_{key}") if key in world.sent else NotLanded()


@pytest.mark.parametrize("goes_on", [resumed, retried])
@pytest.mark.parametrize(("at", "row"), [("before the charge", "T10s"), ("after the charge", "T9s")])
@pytest.mark.parametrize("status", [201, 402])
def test_one_charge_whatever_was_found_out_and_whoever_goes_on(
    world: World, answering: Callable[[Ask], None], goes_on: Callable[..., None], at: str, row: str, status: int
) -> None:
    answering(told(world))
    key = cut(at, refused=status == 402)

    assert maintenance.reconcile() == {"resumable": 1}
    goes_on(key, refused=status == 402)

    record = IdempotencyKey.objects.get()
    assert world.sent == [record.derive("charged")]
    assert sorted(LedgerEntry.objects.values_list("reference", flat=True)) == ["booked", "receipt"]
    assert (record.status, record.response_status, record.recovery_point) == ("completed", status, "receipt")
    assert bytes(record.response_body or b"") == json_reply(201, {"charge": f"ch_{record.derive('charged')}"}).body
    noted = IdempotencyEvent.objects.order_by("id").values_list("transition", "actor", "reason")
    assert list(noted)[1] == (row, "reconciler", "charged")


def test_until_then_a_retry_gets_an_unknown_outcome(world: World) -> None:
    key = cut("after the charge")
    assert isinstance(claim.begin(a_call(key)), InDoubt)
    assert maintenance.reconcile() == {"postponed": 1}, "nobody to ask"
    assert len(world.sent) == 1


def test_that_it_was_not_executed_counts_only_after_grace(world: World, answering: Callable[[Ask], None]) -> None:
    answering(told(world))
    cut("before the charge")
    IdempotencyKey.objects.update(grace_until=F("created_at") + timedelta(hours=1))
    assert maintenance.reconcile() == {"postponed": 1}
    assert maintenance.resume() == {}
    assert world.sent == []


@pytest.fixture
def answering_for_all(registrations: None) -> Callable[[Verdict], None]:
    """Say what the reconciler of the endpoint says of any of its records."""
    verdicts: list[Verdict] = []
    reconciler("tests.endpoint")(lambda record: verdicts[-1])
    return verdicts.append


def test_a_step_without_its_own_is_asked_about_as_the_operation_is(
    world: World, answering_for_all: Callable[[Verdict], None]
) -> None:
    """What the steps before it wrote stays: the key is not free for another beginning."""
    answering_for_all(NotLanded())
    key = cut("before the charge")
    IdempotencyKey.objects.update(operation="tests.endpoint")
    assert maintenance.reconcile() == {"resumable": 1}
    retried(key)
    assert LedgerEntry.objects.count() == 2
    assert len(world.sent) == 1


def test_it_may_know_how_the_whole_operation_ended(world: World, answering: Callable[[Ask], None]) -> None:
    answering(lambda record, key: Landed(json_reply(409, {"sold": "out"})))
    cut("after the charge")
    assert maintenance.reconcile() == {"landed": 1}
    assert IdempotencyKey.objects.get().response_status == 409


@pytest.mark.parametrize("nonsense", [float("nan"), {1, 2}])
def test_a_result_that_cannot_be_stored_is_inconclusive(
    world: World, answering: Callable[[Ask], None], nonsense: Any
) -> None:
    answering(lambda record, key: StepLanded(nonsense))
    cut("after the charge")
    assert maintenance.reconcile() == {"inconclusive": 1}


@pytest.mark.parametrize(("tries", "said"), [(2, "inconclusive"), (1, "dead_letter")])
def test_an_inconclusive_verdict_gives_up_after_the_last_try(
    world: World, answering: Callable[[Ask], None], settings: Any, tries: int, said: str
) -> None:
    settings.IDEMPOTENCY = {"RECONCILE_TRIES": tries}
    answering(lambda record, key: Inconclusive())
    cut("after the charge")
    assert maintenance.reconcile() == {said: 1}


def test_where_no_step_is_in_doubt_a_result_of_one_says_nothing(
    answering_for_all: Callable[[Verdict], None],
) -> None:
    answering_for_all(StepLanded(1))
    attempt = claimed(str(uuid4()))
    fail(attempt, RuntimeError())
    IdempotencyKey.objects.update(operation="tests.endpoint", on_lost_lease="unknown")
    assert maintenance.reconcile() == {"inconclusive": 1}
    assert resolve(attempt.call.id, StepLanded(1), by="gateway") is Outcome.OVERTAKEN


def test_two_that_ask_at_once_settle_it_once(world: World, answering: Callable[[Ask], None]) -> None:
    """And what the slower one found out says nothing about the attempt that goes on."""

    def ask(record: IdempotencyKey, key: str) -> Verdict:
        answering(told(world))
        assert reconcile.reconcile_one(record.id, "default", at_once=True) is Outcome.RESUMABLE
        return slower

    for slower in (StepLanded("something else"), NotLanded(), Inconclusive(), Landed(json_reply(200, {}))):
        world.sent.clear()
        answering(ask)
        cut("after the charge")
        assert maintenance.reconcile() == {"overtaken": 1}, slower
        assert maintenance.resume() == {"landed": 1}
        assert len(world.sent) == 1
        record = IdempotencyKey.objects.get()
        assert b"ch_" in bytes(record.response_body or b"")
        record.delete()


def test_a_step_has_one_reconciler(answering: Callable[[Ask], None]) -> None:
    with pytest.raises(ValueError, match=r"'charged' of 'tests\.careful'"):
        reconciler(NAME, step="charged")(lambda record, key: NotLanded())


# Webhooks and operators


@pytest.mark.parametrize("dead", [False, True])
def test_a_webhook_tells_by_the_key_of_the_call(world: World, dead: bool) -> None:
    cut("after the charge")
    if dead:
        IdempotencyKey.objects.update(status="dead_letter", reconcile_after=None)
    record = IdempotencyKey.objects.get()
    other, mine = record.derive("refunded"), record.derive("charged")

    assert resolve(other, StepLanded("re_1"), by="gateway") is Outcome.OVERTAKEN, "about another step"
    assert resolve(mine, StepLanded("ch_1"), by="gateway") is Outcome.RESUMABLE
    assert resolve(mine, StepLanded("ch_1"), by="gateway") is Outcome.OVERTAKEN, "delivered twice"
    assert maintenance.resume() == {"landed": 1}
    assert b"ch_1" in bytes(IdempotencyKey.objects.get().response_body or b"")
    assert len(world.sent) == 1


@pytest.mark.parametrize("by", ["gateway", "reconciler"])
def test_a_step_that_landed_gives_the_operation_its_attempts_back(
    world: World, answering: Callable[[Ask], None], settings: Any, by: str
) -> None:
    settings.IDEMPOTENCY = {"ATTEMPTS": 1, "ATTEMPTS_SPAN": 0}
    cut("after the charge")
    record = IdempotencyKey.objects.get()
    if by == "gateway":
        assert resolve(record.derive("charged"), StepLanded("ch_1"), by=by) is Outcome.RESUMABLE
    else:
        answering(told(world))
        assert maintenance.reconcile() == {"resumable": 1}
    assert maintenance.resume() == {"landed": 1}


def test_a_webhook_that_comes_while_the_call_runs_is_to_come_again(world: World) -> None:
    world.kill_at = "after the charge"
    attempt = claimed(str(uuid4()))
    with pytest.raises(Killed):
        run(attempt, careful)
    assert resolve(attempt.call.id, StepLanded("ch_1"), by="gateway") is Outcome.RUNNING


@pytest.mark.parametrize("grace_over", [True, False])
def test_an_operator_vouches_that_the_step_did_not_happen(world: World, grace_over: bool) -> None:
    cut("before the charge")
    if not grace_over:
        IdempotencyKey.objects.update(grace_until=F("created_at") + timedelta(hours=1))
    record = IdempotencyKey.objects.get()
    said = resolve(record.id, NotLanded(), by="ops", reason="asked them", operator=True)
    assert said is (Outcome.RESUMABLE if grace_over else Outcome.POSTPONED)
    assert maintenance.resume() == ({"landed": 1} if grace_over else {})
    assert len(world.sent) == (1 if grace_over else 0)


SAID: dict[str, StepLanded | NotLanded] = {"landed": StepLanded("ch_1"), "not executed": NotLanded()}


def by_an_operator(reference: Any, said: str) -> Outcome:
    return resolve(reference, SAID[said], by="ops", reason="asked them", operator=True)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize(
    "named",
    [
        lambda record: record.derive("charged"),
        lambda record: record.id,
        lambda record: str(record.id),
        lambda record: (record.scope, record.key),
    ],
    ids=["the call's key", "the id", "the id as text", "scope and key"],
)
def test_what_names_the_record_is_about_the_step_in_doubt(world: World, named: Any, said: str) -> None:
    cut("before the charge")
    assert by_an_operator(named(IdempotencyKey.objects.get()), said) is Outcome.RESUMABLE
    assert maintenance.resume() == {"landed": 1}
    assert len(world.sent) == (1 if said == "not executed" else 0)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("other", ["receipt", "charge", "charged-2"])
def test_what_is_said_about_another_step_settles_nothing(world: World, other: str, said: str) -> None:
    cut("after the charge")
    record = IdempotencyKey.objects.get()
    assert by_an_operator(record.derive(other), said) is Outcome.OVERTAKEN
    assert isinstance(claim.begin(a_call(record.key)), InDoubt), "nothing is sent before somebody knows"

    assert by_an_operator(record.derive("charged"), "landed") is Outcome.RESUMABLE
    assert by_an_operator(record.derive("charged"), said) is Outcome.OVERTAKEN, "that step is not in doubt any more"
    assert maintenance.resume() == {"landed": 1}
    assert len(world.sent) == 1


@operation("tests.two_effects")
def two_effects(op: Op) -> Reply:
    op.effect("reserved", lambda key: "re_1", in_doubt="repeat")
    WORLD.point("between")
    op.effect("charged", WORLD.charge, in_doubt="reconcile")
    return json_reply(201, {})


def cut_after_the_first(at: str) -> IdempotencyKey:
    WORLD.kill_at = at
    with pytest.raises(Killed):
        run(claimed(str(uuid4())), two_effects)
    lease_over()
    maintenance.sweep()
    return IdempotencyKey.objects.get()


LANDED = Landed(json_reply(201, {"by": "evidence"}))


@pytest.mark.parametrize(("at", "sent"), [("after the charge", 1), ("between", 0)])
def test_evidence_about_a_step_that_is_done_leaves_the_doubt_as_it_is(world: World, at: str, sent: int) -> None:
    record = cut_after_the_first(at)
    assert resolve(record.derive("reserved"), LANDED, by="gateway") is Outcome.OVERTAKEN
    record.refresh_from_db()
    assert (record.status, len(world.sent)) == ("unknown", sent)
    assert not IdempotencyEvent.objects.filter(transition="T13").exists()


def test_evidence_about_another_step_leaves_the_doubt_as_it_is_too() -> None:
    record = cut_after_the_first("after the charge")
    assert resolve(record.derive("refunded"), LANDED, by="gateway") is Outcome.OVERTAKEN
    IdempotencyKey.objects.update(status="in_progress", locked_until=F("created_at"), reconcile_after=None)
    assert resolve(record.derive("refunded"), LANDED, by="gateway") is Outcome.RUNNING


@pytest.mark.parametrize(
    ("named", "operator"),
    [("charged", False), ("charged", True), ("reserved", True), ("", False), ("", True)],
)
def test_evidence_ends_the_operation_about_the_step_in_doubt_by_the_record_or_by_an_operator(
    named: str, operator: bool
) -> None:
    record = cut_after_the_first("after the charge")
    reference = record.derive(named) if named else record.id
    said = replace(LANDED, ends_operation=named == "charged")
    assert resolve(reference, said, by="somebody", reason="seen", operator=operator) is Outcome.LANDED
    record.refresh_from_db()
    assert bytes(record.response_body or b"") == json_reply(201, {"by": "evidence"}).body


def test_evidence_about_the_record_needs_no_steps_that_can_be_read() -> None:
    record = cut_after_the_first("after the charge")
    IdempotencyKey.objects.update(progress="no JSON")
    assert resolve(record.id, LANDED, by="gateway") is Outcome.LANDED


def test_evidence_about_a_step_that_is_done_is_too_late_once_the_record_has_failed() -> None:
    record = cut_after_the_first("between")
    IdempotencyKey.objects.update(
        status="failed", response_status=500, completed_at=F("created_at"), reconcile_after=None
    )
    assert resolve(record.derive("reserved"), LANDED, by="gateway") is Outcome.TOO_LATE


def test_evidence_against_what_an_operator_said_is_believed(world: World) -> None:
    """Else the step that was taken back would be made once more."""
    record = cut_after_the_first("after the charge")
    IdempotencyKey.objects.update(grace_until=F("created_at") - timedelta(hours=1))
    assert by_an_operator(record.id, "not executed") is Outcome.RESUMABLE
    assert resolve(record.derive("charged"), LANDED, by="gateway") is Outcome.LANDED
    assert maintenance.resume() == {}
    assert len(world.sent) == 1


OLDER = "tests.changing"


def changing(op: Op) -> Reply:
    return json_reply(201, op.effect("charged", WORLD.charge, in_doubt="repeat"))


def changed(op: Op) -> Reply:
    return json_reply(201, op.effect("charged", WORLD.charge, in_doubt="reconcile"))


@pytest.mark.usefixtures("registrations")
def test_newer_code_that_would_not_repeat_the_call_does_not(world: World) -> None:
    key = str(uuid4())
    world.kill_at = "after the charge"
    with temporary_registrations(), pytest.raises(Killed):
        run(claimed(key), operation(OLDER)(changing))
    lease_over()
    maintenance.sweep()

    operation(OLDER, version=2)(changed)
    assert maintenance.resume() == {"inconclusive": 1}

    record = IdempotencyKey.objects.get()
    assert (record.status, record.on_lost_lease, record.attempts) == ("unknown", "unknown", 2)
    assert isinstance(claim.begin(a_call(key)), InDoubt), "nothing runs before somebody knows"
    assert maintenance.resume() == {}
    assert resolve(record.derive("charged"), StepLanded("ch_1"), by="gateway") is Outcome.RESUMABLE
    assert maintenance.resume() == {"landed": 1}
    assert len(world.sent) == 1


def test_an_operator_may_let_a_dead_operation_try_again(world: World, settings: Any) -> None:
    settings.IDEMPOTENCY = {"ATTEMPTS": 1, "ATTEMPTS_SPAN": 0}
    world.kill_at = "inside booked"
    with pytest.raises(Killed):
        run(claimed(str(uuid4())), careful)
    lease_over()
    maintenance.sweep()
    assert maintenance.resume() == {"dead_letter": 1}

    record = IdempotencyKey.objects.get().id
    assert reconciliation.try_again(record, by="ops", reason="mended") is Outcome.ASKED
    assert maintenance.resume() == {"landed": 1}


# Proof from within


def unreachable(key: str) -> str:
    raise exceptions.NotExecuted


@operation("tests.proving")
def proving(op: Op) -> Reply:
    op.phase("booked", book, "booked")
    return json_reply(201, op.effect("charged", calls[0], in_doubt="reconcile"))


calls: list[Callable[[str], str]] = [unreachable]


def test_a_call_that_was_proven_not_executed_is_made_again_and_nothing_before_it(world: World) -> None:
    key = str(uuid4())
    attempt = claimed(key)
    calls[0] = unreachable
    with pytest.raises(exceptions.NotExecuted) as caught:
        steps.run_steps(attempt, proving, {})
    fail(attempt, caught.value)
    assert IdempotencyKey.objects.get().status == "unknown"

    calls[0] = world.charge
    run(claimed(key), proving)
    record = IdempotencyKey.objects.get()
    assert (record.status, world.sent) == ("completed", [record.derive("charged")])
    assert LedgerEntry.objects.count() == 1, "the ride was booked once"


@operation("tests.first")
def first(op: Op) -> Reply:
    return json_reply(201, op.effect("charged", calls[0], in_doubt="reconcile"))


def test_a_first_call_that_was_proven_not_executed_frees_the_key(world: World) -> None:
    """Its mark was taken back: as before the first step there is nothing to go on from."""
    key = str(uuid4())
    attempt = claimed(key)
    calls[0] = unreachable
    with pytest.raises(exceptions.NotExecuted) as caught:
        steps.run_steps(attempt, first, {})
    assert fail(attempt, caught.value)
    record = IdempotencyKey.objects.get()
    assert (record.status, record.steps_done, record.on_lost_lease) == ("failed_retryable", 0, "resume")
    assert record.expires_at is not None, "the reaper may take it"

    calls[0] = world.charge
    run(claimed(key), first)
    record = IdempotencyKey.objects.get()
    assert (record.status, world.sent) == ("completed", [record.derive("charged")])


def unheard(key: str) -> str:
    WORLD.charge(key)
    raise TimeoutError


@operation("tests.declining")
def declining(op: Op) -> Reply:
    """A refusal where the provider was not reached."""
    try:
        return json_reply(201, op.effect("charged", calls[0], in_doubt="repeat"))
    except exceptions.NotExecuted:
        return json_reply(503, {})


def test_that_one_call_was_not_executed_says_nothing_about_the_call_before_it(world: World) -> None:
    key = str(uuid4())
    attempt = claimed(key)
    calls[0] = unheard
    with pytest.raises(TimeoutError) as caught:
        steps.run_steps(attempt, declining, {})
    fail(attempt, caught.value)

    calls[0] = unreachable
    refused = claimed(key)
    with pytest.raises(exceptions.StepInDoubt) as caught_again:
        run(refused, declining)
    fail(refused, caught_again.value)
    assert Progress.load(IdempotencyKey.objects.get().progress).step_in_doubt == "charged"

    calls[0] = world.charge
    run(claimed(key), declining)
    record = IdempotencyKey.objects.get()
    assert (record.status, record.response_status) == ("completed", 201)
    assert set(world.sent) == {record.derive("charged")}


def test_a_response_for_the_whole_operation_by_the_key_of_its_step_has_to_say_so(world: World) -> None:
    """A webhook that returns a payment's response about a ride's charge would end the ride with it."""
    cut("after the charge")
    record = IdempotencyKey.objects.get()
    mine, reply = record.derive("charged"), json_reply(200, {})
    with pytest.raises(ValueError, match=r"ends_operation=True"):
        resolve(mine, Landed(reply), by="gateway")
    assert (IdempotencyKey.objects.get().status, record.steps_done) == (
        "unknown",
        IdempotencyKey.objects.get().steps_done,
    )
    assert resolve(mine, Landed(reply, ends_operation=True), by="gateway") is Outcome.LANDED
