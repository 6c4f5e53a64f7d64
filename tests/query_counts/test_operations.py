"""What steps cost beyond their own statements, on the ride of the payments service.

| what             | statements | transaction |
| beginning to run | 1          | none        |
| a phase          | 1          | its own     |
| an effect        | 2          | none        |
| a step gone by   | 0          | none        |
| a worker's start | 2          | none        |

MariaDB adds a savepoint and its release to each phase, which prove that its transaction is the one that commits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from django_idempotency.core.progress import Progress
from django_idempotency.flow import steps
from django_idempotency.flow.attempt import Attempt
from django_idempotency.operations import Op, enqueue, perform
from django_idempotency.store import operations
from testproject.payments.operations import book_ride, charge_ride, create_ride, queue_receipt, write_event
from tests.kit.calls import a_call, claimed
from tests.kit.counting import Counts, counted
from tests.kit.exports import export
from tests.kit.operations import begin_anew

if TYPE_CHECKING:
    from pytest_django.fixtures import Settings

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


@pytest.fixture(autouse=True)
def _gateway_in_process(settings: Settings, tmp_path: Path) -> None:
    settings.GATEWAY_URL = ""
    settings.GATEWAY_LEDGER = tmp_path / "ledger.jsonl"


@pytest.fixture
def attempt() -> Attempt:
    return claimed(a_call(on_lost_lease="resume"))


@pytest.fixture
def op(attempt: Attempt) -> Op:
    assert operations.begin_operation(
        attempt.ref, attempt.token, operations.StoredOperation("rides.create", "{}", "", 0)
    )
    return Op(attempt, Progress(), 0)


def a_ride() -> tuple[int, str, str, int]:
    return User.objects.get_or_create(username="alice")[0].pk, "Bonn", "Ulm", 1200


def alone(function: Callable[[], Any]) -> Counts:
    """A step's own statements, in a transaction of their own."""

    def work() -> None:
        with transaction.atomic():
            function()

    return counted(work)


STEPS: dict[str, Callable[[], Callable[[], Any]]] = {
    "ride_created": lambda: partial(book_ride, *a_ride()),
    "event_written": lambda: partial(write_event, book_ride(*a_ride()), "booked"),
    "receipt_queued": lambda: partial(queue_receipt, book_ride(*a_ride()), "ch_1"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_phase(op: Op, name: str, vendor: str) -> None:
    step = STEPS[name]()
    own = alone(step)
    found = counted(lambda: op.phase(name, step)).beyond(own)
    assert found.numbers() == (1, 0, 0, 2 if vendor == "mysql" else 0), str(found)


def test_an_effect(op: Op) -> None:
    charge = partial(charge_ride, 7, 1200)
    own = counted(lambda: charge("a key of its own"))
    found = counted(lambda: op.effect("charge_created", charge, in_doubt="repeat")).beyond(own)
    assert found.numbers() == (2, 0, 0, 0), str(found)


def test_a_whole_ride_and_the_same_gone_by_again(attempt: Attempt, vendor: str) -> None:
    owner, origin, target, amount = a_ride()
    arguments = {"owner": owner, "origin": origin, "target": target, "amount": amount}
    first = counted(lambda: steps.run_steps(attempt, create_ride, arguments))
    steps_own = 1 + 1 + 0 + 2
    assert first.numbers() == (1 + steps_own + 1 + 1 + 2 + 1, 3, 3, 6 if vendor == "mysql" else 0), str(first)

    again = counted(lambda: steps.run_steps(attempt, create_ride, arguments))
    assert again.numbers() == (2, 0, 0, 0), str(again)


def test_a_worker_picks_work_up_with_one_read_and_one_write(settings: Settings) -> None:
    begin_anew(settings)
    waiting = enqueue("reports", "a key", export, title="may")
    found = counted(lambda: perform(waiting))
    before_the_first_step = found.texts[: found.texts.index(next(text for text in found.texts if "BEGIN" in text))]
    assert [text.split()[0] for text in before_the_first_step] == ["SELECT", "UPDATE"], str(found)
    assert sum(text.startswith("SELECT") for text in found.texts) == 1, str(found)
