"""Code that catches what an effect raised, and goes on: the step stays in doubt, and nothing is built upon it."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from django_idempotency import Reply, json_reply, maintenance
from django_idempotency.core.progress import Progress
from django_idempotency.decorators import IdempotentRequest, idempotent
from django_idempotency.exceptions import NotExecuted, StepInDoubt
from django_idempotency.flow import steps
from django_idempotency.flow.finish import fail
from django_idempotency.flow.steps import WhenInDoubt
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, enqueue, operation, perform
from django_idempotency.reconciliation import Outcome, StepLanded, resolve
from testproject.payments.models import LedgerEntry
from tests.kit.rides import WORLD, World, book, claimed, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("world"), pytest.mark.vendor]


def give_up(op: Op) -> None:
    raise NotExecuted


GOING_ON: dict[str, Callable[[Op], Any]] = {
    "a local step": lambda op: op.phase("noted", book, "noted"),
    "another provider": lambda op: op.effect("charged elsewhere", WORLD.charge, in_doubt="repeat"),
    "the same call": lambda op: op.effect("charged", WORLD.charge, in_doubt="repeat"),
    "a success": lambda op: None,
    "nothing happened": give_up,
}


def charge(key: str) -> str:
    """The first answer is lost on its way."""
    WORLD.charge(key)
    if len(WORLD.sent) == 1:
        raise TimeoutError
    return "ch_2"


@operation("tests.hiding")
def hiding(op: Op, *, then: str, in_doubt: WhenInDoubt) -> Reply:
    try:
        charged = op.effect("charged", charge, in_doubt=in_doubt)
    except TimeoutError:
        GOING_ON[then](op)
        return json_reply(201, "not charged")
    return json_reply(201, charged)


def by_a_request(**arguments: Any) -> None:
    attempt = claimed(str(uuid4()))
    with pytest.raises((StepInDoubt, NotExecuted)) as caught:
        run(attempt, hiding, **arguments)
    assert not fail(attempt, caught.value)


def by_a_worker(**arguments: Any) -> None:
    assert perform(enqueue("tests", "hiding", hiding, **arguments)) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("begun", [by_a_request, by_a_worker])
@pytest.mark.parametrize("then", GOING_ON)
@pytest.mark.parametrize("in_doubt", ["reconcile", "repeat"])
def test_the_step_is_still_in_doubt_and_nothing_came_after_it(
    world: World, begun: Callable[..., None], then: str, in_doubt: str
) -> None:
    begun(then=then, in_doubt=in_doubt)

    record = IdempotencyKey.objects.get()
    assert (record.status, record.attempts) == ("unknown", 1)
    assert Progress.load(record.progress).step_in_doubt == "charged"
    assert world.sent == [record.derive("charged")]
    assert not LedgerEntry.objects.exists()

    if in_doubt == "reconcile":
        assert maintenance.resume() == {}
        assert perform(record.id) in (Outcome.ABSENT, Outcome.OVERTAKEN), "not sent again before somebody knows"
        assert resolve(record.derive("charged"), StepLanded("ch_2"), by="gateway") is Outcome.RESUMABLE
    if perform(record.id) is Outcome.ABSENT:
        maintenance.resume()
    record.refresh_from_db()
    assert (record.status, bytes(record.response_body or b"")) == ("completed", b'"ch_2"')
    assert set(world.sent) == {record.derive("charged")}


def test_the_error_says_what_to_do(world: World) -> None:
    with pytest.raises(StepInDoubt, match=r"'charged' happened, so the step 'noted' does not begin\. Let .* leave"):
        steps.run_steps(claimed(str(uuid4())), hiding, {"then": "a local step", "in_doubt": "repeat"})


def answer(request: IdempotentRequest) -> HttpResponse:
    return HttpResponse("not charged", status=502)


def finish(request: IdempotentRequest) -> HttpResponse:
    return request.idempotency.finish(lambda: HttpResponse("not charged"))


def defer(request: IdempotentRequest) -> HttpResponse:
    return request.idempotency.defer(unheard, in_doubt="repeat")


def refuse(request: IdempotentRequest) -> HttpResponse:
    raise PermissionError


def never_answers(key: str) -> None:
    WORLD.charge(key)
    raise TimeoutError


@operation("tests.unheard")
def unheard(op: Op, *, in_doubt: WhenInDoubt) -> Reply:
    return json_reply(201, op.effect("charged", never_answers, in_doubt=in_doubt))


@pytest.mark.parametrize("instead", [answer, finish, defer, refuse])
@pytest.mark.parametrize(("in_doubt", "sent", "then"), [("reconcile", 1, "unknown"), ("repeat", 2, "resume")])
def test_a_view_cannot_answer_for_its_operation_either(
    world: World, instead: Callable[[IdempotentRequest], HttpResponse], in_doubt: str, sent: int, then: str
) -> None:
    @idempotent(
        operation="tests.http",
        transaction="late",
        on_lost_lease="resume",
        on_error="store",
        share_anonymous=True,
        guessable_anonymous=True,
    )
    def view(request: IdempotentRequest) -> HttpResponse:
        try:
            return request.idempotency.run(unheard, in_doubt=in_doubt)
        except TimeoutError:
            return instead(request)

    key = {"Idempotency-Key": str(uuid4())}
    requests: list[Any] = [RequestFactory().post("/", headers=key) for _ in range(2)]
    assert [view(request).status_code for request in requests] == [409, 409]
    record = IdempotencyKey.objects.get()
    assert (record.status, record.on_lost_lease) == ("unknown", then)
    assert world.sent == [record.derive("charged")] * sent
    assert Progress.load(record.progress).step_in_doubt == "charged"
