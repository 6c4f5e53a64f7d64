"""An operation's place in its record: what runs, with which arguments, and how far it has come."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django_idempotency.core.policy import LostLease
from django_idempotency.store.dialects import Statement

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

# A foreign step that may not simply be repeated takes the right to resume away until it is done.
MARK = Statement(
    "T7p",
    f"""
    UPDATE idempotency_key
    SET progress = %(progress)s, recovery_point = %(recovery_point)s, steps_done = %(then)s,
        on_lost_lease = %(on_lost_lease)s
    WHERE {_MINE} AND steps_done = %(steps_done)s
    """,
)


# How far a step has come, for people: nothing is decided by it.
REPORT = Statement(
    "T7r", f"UPDATE idempotency_key SET progress = %(progress)s WHERE {_MINE} AND steps_done = %(steps_done)s"
)


@dataclass(frozen=True, slots=True)
class Run:
    """What stands in the record."""

    name: str
    arguments: str
    progress: str
    steps_done: int


def begin(scope: str, record: UUID, token: UUID, run: Run, using: str) -> bool:
    """T7b: name and arguments stand in the record before the first step, so that anybody can take it up."""
    return (
        BEGIN.run(
            using,
            scope=scope,
            id=record,
            token=token,
            run_name=run.name,
            arguments=run.arguments,
            progress=run.progress,
        )
        == 1
    )


def read(scope: str, record: UUID, using: str) -> Run | None:
    """What was begun, and how far it has come."""
    found = READ.rows(using, scope=scope, id=record)
    return Run(*found[0]) if found else None


def mark(
    scope: str,
    record: UUID,
    token: UUID,
    steps_done: int,
    then: int,
    progress: str,
    recovery_point: str,
    on_lost_lease: LostLease,
    using: str,
) -> bool:
    """T7p: a step began, ended or was taken back; False when record or progress is not what the attempt believes."""
    return (
        MARK.run(
            using,
            scope=scope,
            id=record,
            token=token,
            steps_done=steps_done,
            then=then,
            progress=progress,
            recovery_point=recovery_point[:255],
            on_lost_lease=on_lost_lease.value,
        )
        == 1
    )


def report(scope: str, record: UUID, token: UUID, steps_done: int, progress: str, using: str) -> bool:
    """T7r: say how far a step has come; False when the record or its progress is not what the attempt believes."""
    return REPORT.run(using, scope=scope, id=record, token=token, steps_done=steps_done, progress=progress) == 1


_AT_STEP: Final = "scope = %(scope)s AND id = %(id)s AND steps_done = %(steps_done)s"
_AS_READ: Final = f"{_AT_STEP} AND status = 'unknown' AND attempt_token = %(read_token)s"
_IN_DOUBT: Final = f"{_AT_STEP} AND status IN ('unknown', 'dead_letter')"

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
