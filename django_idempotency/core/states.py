"""The states of a record, and the groups of states that decisions are made by."""

from enum import StrEnum
from typing import ClassVar, Final


class Status(StrEnum):
    """The state of a record."""

    LEASED: ClassVar["frozenset[Status]"]  # an attempt, or the message that asks for one, owes work until a deadline
    OWNED: ClassVar["frozenset[Status]"]  # the attempt that holds the token may still end it
    OPEN: ClassVar["frozenset[Status]"]  # not settled: somebody or something still has to act
    IN_DOUBT: ClassVar["frozenset[Status]"]  # the outcome is not known
    TERMINAL: ClassVar["frozenset[Status]"]  # the response is stored
    ENDED: ClassVar["frozenset[Status]"]  # terminal, or kept for audit after that
    SETTLEABLE: ClassVar["frozenset[Status]"]  # positive evidence completes it

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
        """One sentence: what it means, and who moves it on."""
        return _MEANINGS[self]


Status.LEASED = frozenset({Status.PENDING, Status.IN_PROGRESS})
Status.OWNED = frozenset({Status.IN_PROGRESS, Status.UNKNOWN})
Status.IN_DOUBT = frozenset({Status.UNKNOWN, Status.DEAD_LETTER})
Status.OPEN = Status.LEASED | Status.IN_DOUBT
Status.TERMINAL = frozenset({Status.COMPLETED, Status.FAILED})
Status.ENDED = Status.TERMINAL | {Status.EXPIRED}
Status.SETTLEABLE = Status.IN_DOUBT | {Status.PENDING, Status.FAILED_RETRYABLE}

_MEANINGS: Final = {
    Status.PENDING: "Accepted and waiting for a worker, which claims it; the reaper fails it when it is abandoned.",
    Status.IN_PROGRESS: "An attempt holds the lease and finishes it; a lease that runs out makes it unknown.",
    Status.COMPLETED: "The answer is stored, success or refusal alike; it stays until it expires.",
    Status.FAILED: "Ended without the handler's own answer; the stored error stays until it expires.",
    Status.FAILED_RETRYABLE: "Proven that nothing happened; the next request claims it.",
    Status.UNKNOWN: "Nobody knows whether the effect happened; a reconciler, a webhook or an operator settles it.",
    Status.DEAD_LETTER: "Reconciliation gave up; an operator or a late webhook settles it.",
    Status.EXPIRED: "Kept for audit and never replayed; the reaper deletes it when its audit time ends.",
}
