"""A worker that was down finds no pile of work to catch up with."""

from __future__ import annotations

import pytest

from django_idempotency.monitoring.jobs import SCHEDULED
from tests.kit.celery_processes import Broker, beat, worker
from tests.kit.threads import wait_until

pytestmark = pytest.mark.soak

ROUNDS = 4
TASKS = len(SCHEDULED)
SENT = r"Sending due task (django_idempotency\.\w+)"
EXECUTED = r"Task django_idempotency\.\w+\[\S+\] succeeded"
EXPIRED = r"Discarding revoked task: django_idempotency\.\w+"


def test_messages_that_nobody_picked_up_in_time_are_not_executed(any_broker: Broker, quick: dict[str, str]) -> None:
    with beat(any_broker, quick) as scheduler:
        wait_until(lambda: len(scheduler.said(SENT)) >= ROUNDS * TASKS)
    sent = any_broker.waiting()  # beat may be told to end between saying that it sends and sending

    with worker(any_broker, quick) as consumer:
        wait_until(lambda: not any_broker.waiting())
        if not any_broker.expires_by_itself:  # the last message leaves the queue before the worker says what it did
            wait_until(lambda: len(consumer.said(f"{EXECUTED}|{EXPIRED}")) >= sent)
    executed, expired = len(consumer.said(EXECUTED)), len(consumer.said(EXPIRED))

    assert any_broker.waiting() == 0
    assert executed <= TASKS, "only the last round may still have been in time"
    if any_broker.expires_by_itself:
        assert executed + expired <= sent
    else:
        assert executed + expired == sent
