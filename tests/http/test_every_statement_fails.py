"""Each call of the driver fails in turn, in each flow: what the client is told is true, and nothing happens twice.

How many calls a flow makes is found by going on until none is left to strike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import Reply, Status, json_reply, maintenance
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import IdempotencyError, NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.operations import Op, operation, perform
from testproject.payments.models import LedgerEntry
from tests.kit.exports import MESSAGES
from tests.kit.faults import KINDS, Fault, Kind, under_fire
from tests.kit.operations import begin_anew
from tests.kit.records import LONG_AGO

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.slow,
    pytest.mark.vendor,
]

OF_THE_LAYER = {202, 400, 409, 410, 422, 429, 503}
OF_THE_VIEWS = {201, 403}
FREE = {None, Status.FAILED_RETRYABLE}
IN_PEACE = nullcontext()
OPEN = {Status.PENDING, Status.IN_PROGRESS, Status.UNKNOWN}


class World:
    """One key: what the project's code did for it, and what it raised by itself."""

    def __init__(self) -> None:
        self.key, self.message = uuid4().hex, ""
        self.charges: set[str] = set()  # by their downstream keys
        self.raised: list[BaseException] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The project's code: what it raises is its own affair."""
        try:
            yield
        except BaseException as error:
            self.raised.append(error)
            raise

    def charge(self, key: str) -> str:
        self.charges.add(key)
        return "charged"

    def book(self) -> str:
        with self.at_work():
            LedgerEntry.objects.create(reference=self.key, account="cash", amount=5)
        return "booked"

    @property
    def effects(self) -> tuple[int, int]:
        """Bookings, and charges by different keys."""
        return LedgerEntry.objects.filter(reference=self.key).count(), len(self.charges)

    @property
    def record(self) -> IdempotencyKey | None:
        return IdempotencyKey.objects.filter(key=self.key).first()

    @property
    def status(self) -> Status | None:
        return None if self.record is None else Status(self.record.status)


WORLD = World()


# Endpoints


def book() -> HttpResponse:
    return HttpResponse(WORLD.book(), status=201)


@idempotent(share_anonymous=True, mode="atomic")
def atomic(request: HttpRequest) -> HttpResponse:
    return book()


@idempotent(share_anonymous=True, mode="atomic")
def atomic_refusal(request: HttpRequest) -> HttpResponse:
    book()
    raise PermissionDenied


@idempotent(share_anonymous=True)
def leased(request: HttpRequest) -> HttpResponse:
    return book()


@idempotent(share_anonymous=True)
def refusal(request: HttpRequest) -> HttpResponse:
    book()
    raise PermissionDenied


@idempotent(share_anonymous=True)
def proof(request: HttpRequest) -> HttpResponse:
    book()
    raise NotExecuted


@idempotent(share_anonymous=True)
def crash(request: HttpRequest) -> HttpResponse:
    book()
    with WORLD.at_work():
        raise RuntimeError


@idempotent(share_anonymous=True, transaction="late")
def late(request: Any) -> HttpResponse:
    WORLD.charge(request.idempotency.derive("charge"))
    response: HttpResponse = request.idempotency.finish(book)
    return response


@operation("tests.under_fire")
def in_steps(op: Op) -> Reply:
    op.phase("booked", WORLD.book)
    op.progress(1, 2)
    op.effect("charged", WORLD.charge, in_doubt="repeat")
    return json_reply(201, "done")


@operation("tests.carefully_under_fire")
def in_careful_steps(op: Op) -> Reply:
    op.effect("charged", WORLD.charge, in_doubt="reconcile")
    op.phase("booked", WORLD.book)
    return json_reply(201, "done")


@idempotent(share_anonymous=True, transaction="late", on_lost_lease="resume")
def run(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.run(in_steps)
    return response


@idempotent(share_anonymous=True, transaction="late", on_lost_lease="resume")
def run_carefully(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.run(in_careful_steps)
    return response


@idempotent(share_anonymous=True, transaction="late")
def defer(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.defer(in_steps)
    return response


VIEWS = [atomic, atomic_refusal, leased, refusal, proof, crash, late, run, run_carefully, defer]
urlpatterns = [path(each.__name__, each) for each in VIEWS]


# Requests, and calls without one


def post(view: Callable[..., Any], body: str = "") -> Callable[[], HttpResponse]:
    def send() -> HttpResponse:
        client, headers = Client(raise_request_exception=False), {"Idempotency-Key": WORLD.key}
        answer: Any = client.post(f"/{view.__name__}", body, "text/plain", headers=headers)
        known = answer.status_code in OF_THE_LAYER | OF_THE_VIEWS
        assert known or WORLD.raised, f"nobody's answer: {answer.status_code} {answer.content[:200]}"
        return answer  # type: ignore[no-any-return]

    return send


def call_once(mode: str) -> Callable[[], object]:
    def run(claim: Claim) -> Any:
        if mode == "atomic":
            return WORLD.book()
        WORLD.charge(claim.derive("charge"))
        return claim.finish(WORLD.book)

    return lambda: outcome_of(lambda: once(scope="fire", key=WORLD.key, run=run, mode=mode))


def accept() -> None:
    post(defer)()
    WORLD.message = MESSAGES.pop()


def work() -> object:
    return outcome_of(lambda: perform(WORLD.message))


def outcome_of(call: Callable[[], object]) -> object:
    """What it returns, or one of the package's own exceptions. Those of the project's code are its own affair."""
    try:
        return call()
    except IdempotencyError as error:
        return error
    except Exception as error:
        if error not in WORLD.raised:
            raise
        return error


@dataclass(frozen=True)
class Flow:
    """What is sent under fire, what was sent in peace before it, and the states in which its record may end."""

    name: str
    send: Callable[[], object]
    before: Callable[[], object] = bool
    ends: frozenset[Status | None] = frozenset({Status.COMPLETED})

    def __str__(self) -> str:
        return self.name


DONE_OR_UNKNOWN = frozenset({Status.COMPLETED, Status.UNKNOWN})
FLOWS = [
    Flow("atomic", post(atomic)),
    Flow("atomic, replay", post(atomic), before=post(atomic)),
    Flow("atomic, refusal", post(atomic_refusal)),
    Flow("leased", post(leased), ends=DONE_OR_UNKNOWN),
    Flow("leased, refusal", post(refusal), ends=DONE_OR_UNKNOWN),
    Flow("leased, proof", post(proof), ends=frozenset({Status.FAILED_RETRYABLE, Status.UNKNOWN})),
    Flow("leased, crash", post(crash), ends=frozenset({Status.FAILED_RETRYABLE, Status.UNKNOWN})),
    Flow("leased, in doubt", post(crash), before=post(crash), ends=frozenset({Status.UNKNOWN})),
    Flow("late", post(late), ends=DONE_OR_UNKNOWN),
    Flow("late, replay", post(late), before=post(late)),
    Flow("late, another body", post(late, "another"), before=post(late)),
    Flow("operation", post(run)),
    Flow("operation, careful", post(run_carefully), ends=DONE_OR_UNKNOWN),
    Flow("defer", post(defer), ends=DONE_OR_UNKNOWN),
    Flow("defer, again", post(defer), before=post(defer)),
    Flow("worker", work, before=accept),
    Flow("once, leased", call_once("leased"), ends=DONE_OR_UNKNOWN),
    Flow("once, atomic", call_once("atomic")),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("flow", FLOWS, ids=str)
def test_no_call_that_fails_makes_an_answer_untrue(flow: Flow, kind: Kind, settings: Any) -> None:
    for nth in count(1):
        begin_anew(settings)
        fault = Fault(kind, nth)
        try:
            go_through(flow, fault)
        except Exception as error:
            raise AssertionError(f"{fault}: {error}") from error
        if not fault.struck:
            break
    assert nth > 1, "the flow makes no call"


def go_through(flow: Flow, fault: Fault) -> None:
    """Send it under fire, again in peace, and once more when the leases are over and the jobs have run."""
    WORLD.__init__()  # type: ignore[misc]
    flow.before()
    WORLD.raised.clear()
    send(flow, under_fire(fault))
    was_free = WORLD.status in FREE
    send(flow)
    if was_free:
        assert WORLD.status in flow.ends | {Status.PENDING}, f"a free key was not used: {WORLD.status}"
    let_the_jobs_run()
    send(flow)
    assert WORLD.status in flow.ends, f"the record ended as {WORLD.status}"


def send(flow: Flow, where: AbstractContextManager[None] = IN_PEACE) -> None:
    """Send it. The record agrees with what happened, and the client is told the truth about both."""
    before = WORLD.effects
    with where:
        answer = flow.send()
    bookings, charges = WORLD.effects
    record = WORLD.record
    found = f"{record and record.status} with {bookings} bookings and {charges} charges"
    assert max(bookings, charges) <= 1, found
    if record is not None and record.status == Status.COMPLETED:
        assert bookings == (record.response_status in (200, 201)), found
    elif bookings or charges:
        assert WORLD.status in OPEN, found
    if isinstance(answer, HttpResponse):
        check_response(answer, did_something=WORLD.effects != before)


def check_response(response: HttpResponse, *, did_something: bool) -> None:
    told = f"{response.status_code} {response.content[:200]!r} of a record that is {WORLD.status}"
    if response.status_code in OF_THE_VIEWS:
        assert WORLD.status is Status.COMPLETED, told
    if response.status_code == 202:
        assert WORLD.status in OPEN, told
    if response.status_code == 503:
        assert not did_something, told
    if response.status_code == 409:
        assert json.loads(response.content)["safe_new_key"] is False, told


def let_the_jobs_run() -> None:
    """Every lease is over and everything is due; workers get their messages."""
    IdempotencyKey.objects.filter(locked_until__isnull=False).update(locked_until=LONG_AGO)
    maintenance.sweep()
    IdempotencyKey.objects.filter(reconcile_after__isnull=False).update(reconcile_after=LONG_AGO)
    maintenance.resume()
    while MESSAGES:
        perform(MESSAGES.pop())
