"""The states of a record, the groups of states that decisions are made by, and what a lost lease leads to."""

from enum import StrEnum
from typing import ClassVar, Final


class Status(StrEnum):
    """The state of a record."""

    LEASED: ClassVar["frozenset[Status]"]  # an attempt, or the message for a worker, has a deadline
    OWNED: ClassVar["frozenset[Status]"]  # the attempt with the token may still end it
    OPEN: ClassVar["frozenset[Status]"]  # not finished: a worker, a reconciler or an operator still has to act
    IN_DOUBT: ClassVar["frozenset[Status]"]  # the outcome is not known
    TERMINAL: ClassVar["frozenset[Status]"]  # the response is stored
    ENDED: ClassVar["frozenset[Status]"]  # terminal, or kept for audit after that
    SETTLEABLE: ClassVar["frozenset[Status]"]  # evidence that the effect happened completes it

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    FAILED_RETRYABLE = "failed_retryable"
    UNKNOWN = "unknown"
    DEAD_LETTER = "dead_letter"
    EXPIRED = "expired"

    @property
    def meaning(self) -> str:
        """Return one sentence: what the state means, and who ends it."""
        return _MEANINGS[self]


Status.LEASED = frozenset({Status.PENDING, Status.IN_PROGRESS})
Status.OWNED = frozenset({Status.IN_PROGRESS, Status.UNKNOWN})
Status.IN_DOUBT = frozenset({Status.UNKNOWN, Status.DEAD_LETTER})
Status.OPEN = Status.LEASED | Status.IN_DOUBT
Status.TERMINAL = frozenset({Status.COMPLETED, Status.FAILED})
Status.ENDED = Status.TERMINAL | {Status.EXPIRED}
Status.SETTLEABLE = Status.IN_DOUBT | {Status.PENDING, Status.FAILED_RETRYABLE}

_MEANINGS: Final = {
    Status.PENDING: "Accepted and waiting for a worker to claim it; the reaper fails it if none does.",
    Status.IN_PROGRESS: "An attempt holds the lease; if the lease expires, the outcome becomes unknown.",
    Status.COMPLETED: "The response is stored, whether a success or an error, and is kept until it expires.",
    Status.FAILED: "Ended without a response from the view; an error response is stored and kept until it expires.",
    Status.FAILED_RETRYABLE: "Not executed, or released by the policy; the next request claims it.",
    Status.UNKNOWN: "It is not known whether the effect happened; a reconciler, a webhook or an operator settles it.",
    Status.DEAD_LETTER: "The reconciler gave up; an operator or a late webhook settles it.",
    Status.EXPIRED: "Kept for audit and never replayed; the reaper deletes it when its audit time ends.",
}


class LostLease(StrEnum):
    """What happens to a record whose lease has expired."""

    UNKNOWN = "unknown"  # nothing runs until the record is settled
    RESTART = "restart"  # safe to restart: the next request takes it over, with the same downstream keys
    RESUME = "resume"  # an operation with recovery points: any process continues from the last one
