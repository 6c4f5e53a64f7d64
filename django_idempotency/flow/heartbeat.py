"""Keeping the lease of a handler that is still running."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic

from django.db import Error

from django_idempotency import signals
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt, Lease
from django_idempotency.signals import announce, logger
from django_idempotency.store import limits, threads

BEATS_PER_LEASE = 3


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
    while not stop.wait(lease.seconds / BEATS_PER_LEASE):
        if monotonic() > deadline:
            logger.error("Record %s has run for longer than its heartbeat; its lease expires.", attempt.call.id)
            return
        if not _extend(attempt, lease):
            return


def _extend(attempt: Attempt, lease: Lease) -> bool:
    """Extend the lease once. False if it was lost. A beat that fails is logged; the next one may succeed."""
    try:
        with limits.limited(attempt.using, attempt.limit):
            if attempt.extend(lease.seconds):
                return True
    except (StoreUnavailable, Error):
        logger.exception("A heartbeat of record %s failed.", attempt.call.id)
        limits.drop_broken(attempt.using)
        return True
    if not attempt.finished:
        logger.error("The lease of record %s was lost while its handler is still running.", attempt.call.id)
        announce(signals.fence_lost, call=attempt.call, using=attempt.using)
    return False
