"""Keeping the lease of a handler that is still running."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from django.db import Error

from django_idempotency import signals
from django_idempotency.core.audit import Kind
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt, Lease
from django_idempotency.signals import announce, logger
from django_idempotency.store import events, limits, threads

BEATS_PER_LEASE: Final = 3
NOTED_FAILURES: Final = 2  # in a row: without the next beat the lease expires


@dataclass(slots=True)
class _Failures:
    """The beats in a row that failed. The audit trail gets one event, as soon as it can be written."""

    attempt: Attempt
    in_a_row: int = 0
    reason: str = ""
    is_noted: bool = False

    def add(self, error: Exception) -> None:
        logger.error("A heartbeat of record %s failed.", self.attempt.call.id, exc_info=error)
        limits.drop_broken(self.attempt.using)
        self.in_a_row += 1
        if self.in_a_row == NOTED_FAILURES:
            self.reason = limits.name_error(error)
        self.note()

    def note(self) -> None:
        if self.is_noted or not self.reason:
            return
        attempt, details = self.attempt, {"attempt": self.attempt.number}
        try:
            with limits.limited(attempt.using, attempt.limit):
                events.write(attempt.ref, Kind.HEARTBEAT_FAILED, reason=self.reason, details=details)
            self.is_noted = True
        except StoreUnavailable:
            limits.drop_broken(attempt.using)


@contextmanager
def beating(attempt: Attempt) -> Iterator[None]:
    """Extend the lease from another thread until the block ends, or for as long as the policy allows.

    Inside a test case there is no heartbeat: another connection cannot see the test's transaction.
    """
    lease = attempt.lease
    if lease.heartbeat is None or limits.inside_test_case(attempt.using):
        yield
        return
    stop = threading.Event()
    deadline = monotonic() + lease.heartbeat.total_seconds()
    thread = threads.start("heartbeat", partial(_beat, attempt, lease, stop, deadline))
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(attempt: Attempt, lease: Lease, stop: threading.Event, deadline: float) -> None:
    failures = _Failures(attempt)
    while not stop.wait(lease.seconds / BEATS_PER_LEASE):
        if monotonic() > deadline:
            logger.error("Record %s has run for longer than its heartbeat; its lease expires.", attempt.call.id)
            break
        if not _extend(attempt, lease, failures):
            break
    failures.note()


def _extend(attempt: Attempt, lease: Lease, failures: _Failures) -> bool:
    """Extend the lease once. False if it was lost. After a beat that fails, the next one may succeed."""
    try:
        with limits.limited(attempt.using, attempt.limit):
            if attempt.extend(lease.seconds):
                failures.in_a_row = 0
                return True
    except (StoreUnavailable, Error) as error:
        failures.add(error)
        return True
    if not attempt.finished:
        logger.error("The lease of record %s was lost while its handler is still running.", attempt.call.id)
        announce(signals.fence_lost, call=attempt.call, using=attempt.using)
    return False
