"""What an operation's refusals and failures come to, once it has done something."""

from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from django_idempotency import Reply, json_reply
from django_idempotency.core.progress import Progress
from django_idempotency.decorators import IdempotentRequest, idempotent
from django_idempotency.exceptions import ChangedDefinition, Misplaced, NotExecuted, StepInDoubt
from django_idempotency.flow.finish import fail
from django_idempotency.http.context import NONE
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.store import operations
from testproject.payments.models import LedgerEntry
from tests.kit.rides import WORLD, Killed, World, book, claimed, lease_over, resume, ride, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("world"), pytest.mark.vendor]


@operation("tests.declined")
def declined(op: Op) -> Reply:
    said = op.effect("charged", lambda key: "declined", in_doubt="repeat")
    WORLD.point("after charged")
    return json_reply(402, {"said": said})


@operation("tests.swallowing")
def swallowing(op: Op) -> Reply:
    try:
        op.effect("charged", WORLD.charge, in_doubt="repeat")
    except TimeoutError:
        return json_reply(504, {})
    return json_reply(201, {})


@operation("tests.unreachable")
def unreachable(op: Op, *, booked: bool) -> Reply:
    if booked:
        op.phase("booked", book, "booked")
    WORLD.point("on the way")
    raise NotExecuted


def status() -> tuple[str, str]:
    record = IdempotencyKey.objects.get()
    return record.status, record.recovery_point


def test_a_refusal_is_the_answer_of_whoever_went_on_too(world: World) -> None:
    key = str(uuid4())
    world.kill_at = "after charged"
    with pytest.raises(Killed):
        run(claimed(key), declined)
    lease_over()

    assert run(claimed(key), declined).status == 402
    assert status() == ("completed", "charged")


def test_a_refusal_with_a_step_half_way_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = str(uuid4())
    world.kill_at = "after the charge"
    with pytest.raises(Killed):
        run(claimed(key), swallowing)
    lease_over()

    def nothing_heard(_key: str) -> str:
        raise TimeoutError

    monkeypatch.setattr(world, "charge", nothing_heard)
    again = claimed(key)
    with pytest.raises(StepInDoubt) as caught:
        run(again, swallowing)
    assert not fail(again, caught.value)
    assert status() == ("unknown", "")


@pytest.mark.parametrize(("booked", "ends"), [(False, ("failed_retryable", "")), (True, ("unknown", "booked"))])
def test_nothing_was_executed_only_while_no_step_is_done(booked: bool, ends: tuple[str, str]) -> None:
    """A retry of what is free again would begin at the first step."""
    attempt = claimed(str(uuid4()))
    with pytest.raises(NotExecuted) as caught:
        run(attempt, unreachable, booked=booked)

    assert fail(attempt, caught.value) is not booked
    assert status() == ends


@pytest.mark.parametrize(("booked", "answers"), [(False, 503), (True, 409)])
def test_the_client_is_not_told_that_nothing_happened(booked: bool, answers: int) -> None:
    @idempotent(
        operation="tests.http",
        transaction="late",
        on_lost_lease="resume",
        share_anonymous=True,
        guessable_anonymous=True,
    )
    def view(request: IdempotentRequest) -> HttpResponse:
        return request.idempotency.run(unreachable, booked=booked)

    key = {"Idempotency-Key": str(uuid4())}
    requests: list[Any] = [RequestFactory().post("/", headers=key) for _ in range(2)]
    assert [view(request).status_code for request in requests] == [answers] * 2
    assert LedgerEntry.objects.count() == booked


def test_an_operation_that_leaves_a_step_out_was_changed() -> None:
    name = f"tests.shorter.{uuid4()}"

    @operation(name)
    def shorter(op: Op) -> Reply:
        return json_reply(201, op.phase("booked", book, "booked"))

    attempt = claimed(str(uuid4()))
    done = Progress().mark_done("booked", "booked").mark_done("of another release", None)
    begun = operations.StoredOperation(name, "{}", done.dump(), 0)
    assert operations.begin_operation(attempt.ref, attempt.token, begun)

    with pytest.raises(ChangedDefinition, match="'of another release'"):
        resume(attempt)
    assert not LedgerEntry.objects.exists()


def test_without_a_key_there_is_no_place_for_steps() -> None:
    with pytest.raises(Misplaced, match="needs a key"):
        NONE.run(ride, user=7)
