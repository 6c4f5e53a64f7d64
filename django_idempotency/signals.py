"""Signals of the package. Each is sent after its change was committed. An error in a receiver is only logged.

Each carries `using` (the database alias) and, if a request is involved, `call` (scope, key, operation, policy).
Receivers must not log the key; `call.id` is the record's id and does not reveal the key.
"""

import logging
from typing import Any, Final

from django.dispatch import Signal

__all__ = [
    "cache_failed",
    "cache_hit",
    "cache_missed",
    "cache_rejected",
    "completed",
    "dead_lettered",
    "doubted",
    "fence_lost",
    "in_doubt",
    "in_flight",
    "lease_lapsed",
    "misused",
    "pruned",
    "reconcile_failed",
    "refused_expired",
    "released",
    "renewed",
    "replayed",
    "reserved",
    "resolved",
    "resume_failed",
    "retried",
    "store_failed",
    "taken_over",
    "unattended",
]

logger: Final = logging.getLogger("django_idempotency")
security: Final = logging.getLogger("django_idempotency.security")

reserved: Final = Signal()  #: call: a new key was claimed
retried: Final = Signal()  #: call: a key was claimed again after its earlier attempts were proven not executed
renewed: Final = Signal()  #: call: an expired key was claimed as a new one
taken_over: Final = Signal()  #: call: the work of a lost attempt is being restarted or resumed
replayed: Final = Signal()  #: call: the stored response was sent
in_flight: Final = Signal()  #: call: the first request is still running
misused: Final = Signal()  #: call: the key belongs to a different request
in_doubt: Final = Signal()  #: call: a request found that the outcome is unknown
refused_expired: Final = Signal()  #: call: the key has expired and its endpoint rejects expired keys
completed: Final = Signal()  #: call, reply, seconds: a response was stored, this long after the claim
released: Final = Signal()  #: call, code: an attempt was proven not executed
doubted: Final = Signal()  #: call, code: an attempt ended with an unknown outcome
fence_lost: Final = Signal()  #: call: an attempt found that it no longer owns its record
lease_lapsed: Final = Signal()  #: record: a lease expired; its worker crashed or was too slow
resolved: Final = Signal()  #: record, outcome: an unknown outcome was settled
reconcile_failed: Final = Signal()  #: record, reason: a check by the reconciler was inconclusive
resume_failed: Final = Signal()  #: record, reason: an operation failed again when it was continued
unattended: Final = Signal()  #: record, reason: this process has no reconciler or code to settle an unknown outcome
dead_lettered: Final = Signal()  #: record: the reconciler gave up; an operator has to settle the record
pruned: Final = Signal()  #: count: stored responses past their retention were deleted
store_failed: Final = Signal()  #: error: the store did not respond within its time limit
cache_hit: Final = Signal()  #: call: the cache held the stored response
cache_missed: Final = Signal()  #: call: the cache had no response, and the table was asked
cache_rejected: Final = Signal()  #: call: the cache held an entry that this installation did not write
cache_failed: Final = Signal()  #: error: the cache raised an error, which was ignored


def announce(signal: Signal, **payload: Any) -> None:
    """Send a signal to every receiver; log the exception of a receiver that fails."""
    for receiver, outcome in signal.send_robust(sender=None, **payload):
        if isinstance(outcome, Exception):
            logger.error("A receiver of an idempotency signal failed: %r", receiver, exc_info=outcome)
