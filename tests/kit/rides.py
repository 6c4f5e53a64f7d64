"""A ride in three steps, a world that counts what was sent, and a process that can be killed anywhere."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from django_idempotency import Reply, json_reply
from django_idempotency.core.calls import Call
from django_idempotency.flow import steps
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import finish
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.store import operations
from testproject.payments.models import LedgerEntry
from tests.kit import calls


class Killed(BaseException):
    """The process ends here: nothing below runs, as after a SIGKILL."""


class World:
    """The other side, and where the process is killed."""

    def __init__(self) -> None:
        self.kill_at = ""
        self.sent: list[str] = []

    def point(self, name: str) -> None:
        if name == self.kill_at:
            self.kill_at = ""
            raise Killed(name)

    def charge(self, key: str) -> str:
        self.point("before the charge")
        self.sent.append(key)
        self.point("after the charge")
        return f"ch_{key}"


WORLD = World()


def book(reference: str) -> str:
    LedgerEntry.objects.create(reference=reference, account="ride", amount=1)
    WORLD.point(f"inside {reference}")
    return reference


@operation("tests.ride")
def ride(op: Op, *, user: int) -> Reply:
    WORLD.point("at the start")
    first = op.phase("booked", book, "booked")
    WORLD.point("after booked")
    charge = op.effect("charged", WORLD.charge, in_doubt="repeat")
    WORLD.point("after charged")
    op.phase("receipt", book, "receipt")
    WORLD.point("after receipt")
    return json_reply(201, {"user": user, "first": first, "charge": charge})


@operation("tests.cautious")
def cautious(op: Op) -> Reply:
    return json_reply(201, op.effect("charged", WORLD.charge, in_doubt="reconcile"))


POINTS = [
    "at the start",
    "inside booked",
    "after booked",
    "before the charge",
    "after the charge",
    "after charged",
    "inside receipt",
    "after receipt",
]


def a_call(key: str) -> Call:
    return calls.a_call(key, operation="", transaction="late", on_lost_lease="resume", attempts_span=timedelta(0))


def claimed(key: str) -> Attempt:
    return calls.claimed(a_call(key))


def run(attempt: Attempt, function: Any, **arguments: Any) -> Reply:
    reply = steps.run_steps(attempt, function, arguments)
    return finish(attempt, lambda: (reply, reply))


def lease_over() -> None:
    IdempotencyKey.objects.filter(status="in_progress").update(locked_until=F("created_at") - timedelta(seconds=1))


def resume(attempt: Attempt) -> Reply:
    """Continue what the record holds."""
    stored = operations.read_operation(attempt.ref)
    assert stored is not None
    return steps.resume_steps(attempt, stored)
