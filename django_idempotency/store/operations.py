"""What a record holds about its operation: name, arguments and steps, and what settles a step that is in doubt."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django_idempotency.core.refs import Ref
from django_idempotency.core.states import LostLease, Status
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.dialects import Statement, among_states

_HERE: Final = "scope = %(scope)s AND id = %(id)s"
_MINE: Final = f"{_HERE} AND attempt_token = %(token)s AND status = 'in_progress'"

BEGIN = Statement(
    "T7b",
    f"""
    UPDATE idempotency_key
    SET run_name = %(run_name)s, arguments = %(arguments)s, progress = %(progress)s, on_lost_lease = 'resume'
    WHERE {_MINE} AND run_name = ''
    """,
)

READ = Statement("", f"SELECT run_name, arguments, progress, steps_done FROM idempotency_key WHERE {_HERE}")

# While an effect runs that must not be repeated, the operation may not be resumed.
MARK = Statement(
    "T7p",
    f"""
    UPDATE idempotency_key
    SET progress = %(progress)s, recovery_point = %(recovery_point)s, steps_done = %(then)s,
        on_lost_lease = %(on_lost_lease)s
    WHERE {_MINE} AND steps_done = %(steps_done)s
    """,
)


# Progress within a step is for people: nothing is decided by it.
REPORT = Statement(
    "T7r", f"UPDATE idempotency_key SET progress = %(progress)s WHERE {_MINE} AND steps_done = %(steps_done)s"
)


@dataclass(frozen=True, slots=True)
class StoredOperation:
    """What a record says about its operation."""

    name: str
    arguments: str
    progress: str
    steps_done: int

    @classmethod
    def of(cls, row: IdempotencyKey) -> "StoredOperation":
        """Return the part of a whole record that is about its operation."""
        return cls(row.run_name, row.arguments, row.progress, row.steps_done)

    @property
    def values(self) -> dict[str, Any]:
        """What a statement writes when the operation begins."""
        return {"run_name": self.name, "arguments": self.arguments, "progress": self.progress}


def begin_operation(ref: Ref, token: UUID, operation: StoredOperation) -> bool:
    """Store name and arguments before the first step (T7b), so that any process can continue the operation."""
    return BEGIN.apply(ref, token=token, **operation.values)


def read_operation(ref: Ref) -> StoredOperation | None:
    """Read what was begun, and how far it has come."""
    found = READ.rows(ref.using, scope=ref.scope, id=ref.id)
    return StoredOperation(*found[0]) if found else None


@dataclass(frozen=True, slots=True)
class Mark:
    """That a step began, ended or was taken back."""

    steps_done: int  # marks that the record has
    then: int  # and has afterwards
    progress: str
    recovery_point: str
    on_lost_lease: LostLease


def mark(ref: Ref, token: UUID, mark: Mark) -> bool:
    """Write a mark (T7p). False if the record is not as the attempt knows it."""
    return MARK.apply(
        ref,
        token=token,
        steps_done=mark.steps_done,
        then=mark.then,
        progress=mark.progress,
        recovery_point=mark.recovery_point[:255],
        on_lost_lease=mark.on_lost_lease.value,
    )


def report(ref: Ref, token: UUID, steps_done: int, progress: str) -> bool:
    """Store how far a step has come (T7r). False if the record is not as the attempt knows it."""
    return REPORT.apply(ref, token=token, steps_done=steps_done, progress=progress)


_AT_STEP: Final = "scope = %(scope)s AND id = %(id)s AND steps_done = %(steps_done)s"
_AS_READ: Final = f"{_AT_STEP} AND status = 'unknown' AND attempt_token = %(read_token)s"
_IN_DOUBT: Final = f"{_AT_STEP} AND status {among_states(Status.IN_DOUBT)}"

# The new token ends the attempt that was asked about: a second verdict about it matches no row.
_GOES_ON: Final = """
    status = 'unknown', attempt_token = %(token)s, progress = %(progress)s, recovery_point = %(recovery_point)s,
    steps_done = steps_done + 1, on_lost_lease = 'resume', reconcile_after = {now}, reconcile_attempts = 0
"""

# A step that landed is progress, and an operator's word is a new start: both give all attempts back.
STEP_LANDED = Statement("T9s", f"UPDATE idempotency_key SET {_GOES_ON}, attempts = 0 WHERE {_AS_READ}")
STEP_NOT_EXECUTED = Statement(
    "T10s", f"UPDATE idempotency_key SET {_GOES_ON} WHERE {_AS_READ} AND grace_until <= {{now}}"
)
STEP_EVIDENCE = Statement("T13s", f"UPDATE idempotency_key SET {_GOES_ON}, attempts = 0 WHERE {_IN_DOUBT}")
STEP_DISMISS = Statement(
    "T14s", f"UPDATE idempotency_key SET {_GOES_ON}, attempts = 0 WHERE {_IN_DOUBT} AND grace_until <= {{now}}"
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where the operation continues once a step is settled, and how many marks it had when it was read."""

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


def land_step(ref: Ref, read_token: UUID, continuation: Continuation) -> bool:
    """Store the result of the step (T9s)."""
    return STEP_LANDED.apply(ref, read_token=read_token, **continuation.values)


def take_step_back(ref: Ref, read_token: UUID, continuation: Continuation) -> bool:
    """Take the step's mark back (T10s): it did not happen, and no message of it can still arrive."""
    return STEP_NOT_EXECUTED.apply(ref, read_token=read_token, **continuation.values)


def confirm_step(ref: Ref, continuation: Continuation) -> bool:
    """Store the result of the step on a webhook's or an operator's word (T13s)."""
    return STEP_EVIDENCE.apply(ref, **continuation.values)


def dismiss_step(ref: Ref, continuation: Continuation) -> bool:
    """Take the step's mark back on an operator's word (T14s)."""
    return STEP_DISMISS.apply(ref, **continuation.values)
