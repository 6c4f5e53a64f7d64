"""What the transition table says a statement does to a row, worked out without any SQL.

A `Verb` is one of the store's functions with the rows of the table that it carries out and the columns that it writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from django.utils import timezone

from django_idempotency import Status
from django_idempotency.core.calls import Call
from django_idempotency.core.policy import Expiry
from django_idempotency.core.states import LostLease
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event, Guard, Transition
from django_idempotency.store.dialects import Statement
from tests.kit.rows import AUDIT, Row, a_call

UNATTENDED = timedelta(minutes=90)  # the limit that the verb states
CLOSE = timedelta(seconds=60)  # how long a test may take between a statement and its prediction


@dataclass(frozen=True)
class Facts:
    """What the caller of a statement brings along."""

    key: str = "key"
    read_token: UUID = field(default_factory=uuid4)
    new_token: UUID = field(default_factory=uuid4)
    success: bool = True
    derives: bool = False
    steps_done: int = 0
    cap: int = 10
    restart: bool = False
    keep: bool = False  # no retention
    soft: bool = False

    @property
    def call(self) -> Call:
        forever: dict[str, Any] = {"retention": None} if self.keep else {}
        return a_call(
            key=self.key,
            attempts=self.cap,
            on_lost_lease=LostLease.RESTART if self.restart else LostLease.UNKNOWN,
            expiry=Expiry.SOFT if self.soft else Expiry.HARD,
            audit=timedelta(seconds=AUDIT),
            **forever,
        )

    def having_read(self, row: Row | None, *, token: bool = True, progress: bool = True) -> "Facts":
        """The same caller, who has read this row, or only one of the two things to hold against it."""
        if row is None or row["attempt_token"] is None:
            return self
        token_read = row["attempt_token"] if token else self.read_token
        return replace(self, read_token=token_read, steps_done=row["steps_done"] if progress else self.steps_done)


def past(moment: datetime | None) -> bool:
    return moment is not None and moment <= timezone.now()


def retention_over(row: Row, event: Event) -> bool:
    # To a request an expired record is over; to the reaper it still has its audit time.
    return past(row["expires_at"]) or (event is Event.REQUEST and row["status"] == Status.EXPIRED)


def held(guard: Guard, row: Row, facts: Facts, event: Event) -> bool:
    """Whether the guard holds for this row and this caller."""
    match guard:
        case Guard.LEASE_LIVE:
            return row["locked_until"] is not None and not past(row["locked_until"])
        case Guard.LEASE_OVER:
            return past(row["locked_until"])
        case Guard.TOKEN_MINE | Guard.TOKEN_AS_READ:
            return bool(row["attempt_token"] == facts.read_token)
        case Guard.UNTAINTED:
            return not row["tainted"]
        case Guard.SUCCESS_OR_UNTAINTED:
            return facts.success or not row["tainted"]
        case Guard.RESUMABLE | Guard.NOT_RESUMABLE:
            return (row["on_lost_lease"] != "unknown") is (guard is Guard.RESUMABLE)
        case Guard.NO_STEP_MARKED:
            return bool(row["steps_done"] == 0)
        case Guard.PROGRESS_AS_READ:
            return bool(row["steps_done"] == facts.steps_done)
        case Guard.TRACE | Guard.NO_TRACE:
            trace = row["tainted"] or row["derived"] or row["wrote"] or row["steps_done"] > 0
            return bool(trace) is (guard is Guard.TRACE)
        case Guard.NOTHING_WRITTEN:
            return not row["wrote"]
        case Guard.GRACE_OVER:
            return past(row["grace_until"])
        case Guard.TRIES_LEFT | Guard.NO_TRIES_LEFT:
            return (row["reconcile_attempts"] + 1 < facts.cap) is (guard is Guard.TRIES_LEFT)
        case Guard.PAUSE_NOT_OVER:
            return False  # decided before any statement; in these worlds every pause has passed
        case Guard.DUE:
            return past(row["reconcile_after"])
        case Guard.UNATTENDED:
            return row["last_run_at"] is not None and past(row["last_run_at"] + UNATTENDED)
        case Guard.ATTEMPTS_LEFT | Guard.NO_ATTEMPTS_LEFT:
            return (row["attempts"] < facts.cap) is (guard is Guard.ATTEMPTS_LEFT)
        case Guard.RETAINED | Guard.RETENTION_OVER:
            return retention_over(row, event) is (guard is Guard.RETENTION_OVER)
        case Guard.DEFERRED | Guard.NOT_DEFERRED:
            return bool(row["deferred"]) is (guard is Guard.DEFERRED)
        case Guard.NOT_BEGUN:
            return not row["run_name"]
        case Guard.HAS_RUN:
            return row["attempt_token"] is not None
        case Guard.AUDITED | Guard.NOT_AUDITED:
            return (row["audit_seconds"] is not None) is (guard is Guard.AUDITED)


def applies(transition: Transition, row: Row | None, facts: Facts) -> bool:
    """Whether the table lets this transition happen to this row."""
    if row is None:
        return not transition.sources
    return Status(row["status"]) in transition.sources and all(
        held(guard, row, facts, transition.event) for guard in transition.guards
    )


@dataclass(frozen=True)
class Verb:
    """One function of the store."""

    name: str
    statement: Statement
    event: Event
    run: Callable[[UUID, Facts], bool]
    writes: Callable[[Row, Facts], Row]
    target: Status | Edge | None = None  # where the statement carries out one of several rows with the same name

    @property
    def transitions(self) -> tuple[Transition, ...]:
        return tuple(
            each
            for each in TRANSITIONS
            if each.event is self.event and each.cite in self.statement.cites and self.target in (None, each.target)
        )

    def predicted(self, row: Row | None, facts: Facts) -> tuple[bool, Row | None]:
        """Whether the function says that it changed something, and the row afterwards."""
        fitting = [each for each in self.transitions if applies(each, row, facts)]
        if not fitting:
            return False, row
        (transition,) = fitting
        if transition.target is Edge.DELETED:
            return True, None
        assert isinstance(transition.target, Status)
        written = self.writes(row or {}, facts)
        return True, {**(row or NEW), **written, "status": transition.target.value}


NEW: Final[Mapping[str, Any]] = {
    "attempts": 1,
    "tainted": False,
    "derived": False,
    "wrote": False,
    "locked_until": None,
    "deferred": False,
    "run_name": "",
    "arguments": "",
    "progress": "",
    "steps_done": 0,
    "recovery_point": "",
    "reconcile_after": None,
    "reconcile_attempts": 0,
    "last_error_code": "",
    "response_status": None,
    "response_headers": "",
    "response_body": None,
    "response_schema_version": None,
    "completed_at": None,
    "expires_at": None,
}


def later(seconds: float | None) -> datetime | None:
    return None if seconds is None else timezone.now() + timedelta(seconds=seconds)


def differences(actual: Row | None, expected: Row | None) -> dict[str, tuple[Any, Any]]:
    """The columns that are not as predicted; times may differ by as long as a test takes."""
    if actual is None or expected is None:
        return {} if actual is expected else {"row": (actual, expected)}
    return {
        name: (actual.get(name), expected.get(name))
        for name in actual.keys() | expected.keys()
        if not _alike(actual.get(name), expected.get(name))
    }


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, datetime) and isinstance(other, datetime):
        return abs(one - other) < CLOSE
    return bool(one == other)
