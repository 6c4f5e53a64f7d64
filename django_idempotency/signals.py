"""What the package tells the project. Every signal is sent after the change was committed and cannot break a request.

Each carries `using` (the database alias) and, where a request is involved, `call` (scope, key, operation, policy).
Receivers must not log the key: `call.id` names the record without giving it away.
"""

import logging
from typing import Any, Final

from django.dispatch import Signal

__all__ = [
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
]

logger: Final = logging.getLogger("django_idempotency")
security: Final = logging.getLogger("django_idempotency.security")

reserved: Final = Signal()  # call: a new key was claimed
retried: Final = Signal()  # call: a key was claimed again whose attempts were proven not executed
renewed: Final = Signal()  # call: an expired key was claimed as a new one
taken_over: Final = Signal()  # call: a lost attempt is being restarted or resumed
replayed: Final = Signal()  # call: the stored answer was given
in_flight: Final = Signal()  # call: the first request is still running
misused: Final = Signal()  # call: the key belongs to another request
in_doubt: Final = Signal()  # call: the outcome is unknown
refused_expired: Final = Signal()  # call: the key has expired and expired keys are refused here
completed: Final = Signal()  # call, reply, seconds: an answer was stored, so long after the claim
released: Final = Signal()  # call, code: proven not executed
doubted: Final = Signal()  # call, code: an attempt ended and nobody knows how
fence_lost: Final = Signal()  # call: an attempt found that its record is no longer its own
lease_lapsed: Final = Signal()  # record: a lease ran out; its worker crashed or was too slow
resolved: Final = Signal()  # record, outcome: a doubt was settled
reconcile_failed: Final = Signal()  # record, reason: a poll was inconclusive
resume_failed: Final = Signal()  # record, reason: an operation failed again when it was continued
dead_lettered: Final = Signal()  # record: reconciliation gave up; a person has to look
pruned: Final = Signal()  # count: answers past their retention were deleted
store_failed: Final = Signal()  # error: the store did not answer within its limit


def announce(signal: Signal, **payload: Any) -> None:
    """Send to every receiver; one that raises is logged and changes nothing."""
    for receiver, outcome in signal.send_robust(sender=None, **payload):
        if isinstance(outcome, Exception):
            logger.error("A receiver of an idempotency signal failed: %r", receiver, exc_info=outcome)
