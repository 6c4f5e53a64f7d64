"""Each call of the driver fails in turn while work is handed over and performed: it is done once, with its writes."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from uuid import uuid4

import pytest
from django.db.models import F

from django_idempotency import maintenance
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.deferred import defer
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import perform
from testproject.payments.models import LedgerEntry
from tests.kit.exports import MESSAGES, STEPS, export, note
from tests.kit.faults import KINDS, Fault, Kind, under_fire
from tests.kit.rides import claimed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("world"),
    pytest.mark.slow,
    pytest.mark.vendor,
]
ENOUGH = 10


def struck(fault: Fault, work: Callable[[], object]) -> bool:
    """Work under fire; whether the fault found a call to strike."""
    with under_fire(fault), suppress(Exception):
        work()
    return bool(fault.struck)


def handed_over() -> Attempt:
    LedgerEntry.objects.all().delete()
    IdempotencyKey.objects.all().delete()
    MESSAGES.clear()
    return claimed(str(uuid4()))


def in_the_end(attempt: Attempt) -> str:
    """Time passes, the jobs come by, and a worker gets every message, again and again."""
    record = IdempotencyKey.objects.filter(id=attempt.call.id)
    for _ in range(ENOUGH):
        past = F("created_at") - timedelta(seconds=1)
        record.filter(locked_until__isnull=False).update(locked_until=past)
        record.filter(reconcile_after__isnull=False).update(reconcile_after=past)
        maintenance.sweep()
        maintenance.resume()
        for message in list(MESSAGES):
            perform(message)
    return record.get().status


def booked() -> list[str]:
    return sorted(LedgerEntry.objects.values_list("reference", flat=True))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_handed_over_is_there_with_its_writes_or_not_at_all(kind: Kind) -> None:
    for nth in count(1):
        attempt, fault = handed_over(), Fault(kind, nth)
        again = struck(fault, lambda attempt=attempt: defer(attempt, export, {"title": "may"}, note))  # type: ignore[misc]
        where = str(fault)
        accepted = IdempotencyKey.objects.get().deferred
        assert booked() == (["asked for"] if accepted else []), where
        assert in_the_end(attempt) == ("completed" if accepted else "unknown"), where
        assert booked() == (["asked for", *STEPS] if accepted else []), where
        if not again:
            break
    assert nth > 1
    assert accepted


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_performed_is_performed_once(kind: Kind) -> None:
    for nth in count(1):
        attempt, fault = handed_over(), Fault(kind, nth)
        defer(attempt, export, {"title": "may"})
        again = struck(fault, lambda: perform(MESSAGES[0]))
        assert in_the_end(attempt) == "completed", str(fault)
        assert booked() == STEPS, str(fault)
        if not again:
            break
    assert nth > len(STEPS)
