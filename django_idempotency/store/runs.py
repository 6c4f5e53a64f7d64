"""An operation's place in its record: what runs, with which arguments, and how far it has come."""

from dataclasses import dataclass
from typing import Final
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
