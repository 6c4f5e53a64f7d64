"""Keeping the lease of a handler that is still running."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from django.db import Error, connections

from django_idempotency import signals
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt
from django_idempotency.signals import announce, logger
from django_idempotency.store import attempts, limits

BEATS_PER_LEASE = 3


@contextmanager
def beating(attempt: Attempt) -> Iterator[None]:
    """Extend the lease from another thread until the block ends, or for as long as the policy allows.

    A test case's transaction cannot be seen from another connection, so there nothing beats.
    """
    longest = attempt.call.policy.heartbeat
    if longest is None or limits.inside_test_case(attempt.using):
        yield
        return
    stop = threading.Event()
    deadline = monotonic() + longest.total_seconds()
    thread = threading.Thread(target=_beat, args=(attempt, stop, deadline), daemon=True, name="idempotency-heartbeat")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(attempt: Attempt, stop: threading.Event, deadline: float) -> None:
    pause = attempt.call.policy.lease.total_seconds() / BEATS_PER_LEASE
    try:
        while not stop.wait(pause):
            if monotonic() > deadline:
                logger.error("Record %s outlived its heartbeat; its lease will run out.", attempt.call.id)
                return
            if not _extended(attempt):
                return
    finally:
        connections.close_all()


def _extended(attempt: Attempt) -> bool:
    """Whether to go on. A beat that fails is loud; the next one may succeed while the lease lasts."""
    call, policy = attempt.call, attempt.call.policy
    lease, grace = int(policy.lease.total_seconds()), int(policy.grace.total_seconds())
    try:
        with limits.limited(attempt.using, policy.claim_limit.total_seconds()):
            if attempts.extend(call.scope, call.id, attempt.token, lease, grace, attempt.using):
                return True
    except (StoreUnavailable, Error):
        logger.exception("A heartbeat of record %s failed.", call.id)
        limits.drop_broken(attempt.using)
        return True
    if not attempt.finished:
        logger.error("The lease of record %s was lost while its handler is still running.", call.id)
        announce(signals.fence_lost, call=call, using=attempt.using)
    return False
