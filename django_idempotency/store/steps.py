"""Settling the doubt about one step of an operation: afterwards anybody may go on with the operation."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django_idempotency.store.dialects import Statement

_HERE: Final = "scope = %(scope)s AND id = %(id)s AND steps_done = %(steps_done)s"
_AS_READ: Final = f"{_HERE} AND status = 'unknown' AND attempt_token = %(read_token)s"
_IN_DOUBT: Final = f"{_HERE} AND status IN ('unknown', 'dead_letter')"

# The new token ends the attempt that was asked about: what else was found out about it comes too late.
_GOES_ON: Final = """
    status = 'unknown', attempt_token = %(token)s, progress = %(progress)s, recovery_point = %(recovery_point)s,
    steps_done = steps_done + 1, on_lost_lease = 'resume', reconcile_after = {now}, reconcile_attempts = 0
"""

# A step that landed is progress, and what a person gives back begins anew: either has all its attempts again.
LANDED = Statement("T9s", f"UPDATE idempotency_key SET {_GOES_ON}, attempts = 0 WHERE {_AS_READ}")
NOT_EXECUTED = Statement("T10s", f"UPDATE idempotency_key SET {_GOES_ON} WHERE {_AS_READ} AND grace_until <= {{now}}")
EVIDENCE = Statement("T13s", f"UPDATE idempotency_key SET {_GOES_ON}, attempts = 0 WHERE {_IN_DOUBT}")
DISMISS = Statement(
    "T14s", f"UPDATE idempotency_key SET {_GOES_ON}, attempts = 0 WHERE {_IN_DOUBT} AND grace_until <= {{now}}"
)


@dataclass(frozen=True, slots=True)
class GoOn:
    """Where the operation goes on from, now that one step is settled, and how many marks it had when it was read."""

    step: str
    token: UUID
    progress: str
    recovery_point: str
    steps_done: int

    @property
    def values(self) -> dict[str, Any]:
        return {
            "token": self.token,
            "progress": self.progress,
            "recovery_point": self.recovery_point[:255],
            "steps_done": self.steps_done,
        }


def landed(scope: str, record: UUID, read_token: UUID, go_on: GoOn, using: str) -> bool:
    """T9s: the step happened, and this is its result."""
    return LANDED.run(using, scope=scope, id=record, read_token=read_token, **go_on.values) == 1


def not_executed(scope: str, record: UUID, read_token: UUID, go_on: GoOn, using: str) -> bool:
    """T10s: the step did not happen, and no message of it can still be on its way."""
    return NOT_EXECUTED.run(using, scope=scope, id=record, read_token=read_token, **go_on.values) == 1


def evidence(scope: str, record: UUID, go_on: GoOn, using: str) -> bool:
    """T13s: somebody who knows says that the step happened."""
    return EVIDENCE.run(using, scope=scope, id=record, **go_on.values) == 1


def dismiss(scope: str, record: UUID, go_on: GoOn, using: str) -> bool:
    """T14s: an operator vouches that the step did not happen."""
    return DISMISS.run(using, scope=scope, id=record, **go_on.values) == 1
