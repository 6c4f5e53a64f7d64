"""Every change of a record's state, as data.

The store's statements, the CHECK constraints, the diagram and the tests are compared with this table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from django_idempotency.core.states import Status

__all__ = ["TRANSITIONS", "Edge", "Event"]


class Edge(Enum):
    """The target of a transition that does not end in a status."""

    SAME = "unchanged"
    DELETED = "deleted"


class Guard(StrEnum):
    """A condition that the statement repeats in its WHERE, so that the database decides who wins a race."""

    LEASE_LIVE = "the lease has not expired"
    LEASE_OVER = "the lease has expired"
    TOKEN_MINE = "the token is the caller's"
    TOKEN_AS_READ = "the token is the one read before"
    UNTAINTED = "no earlier attempt has an unknown outcome"
    SUCCESS_OR_UNTAINTED = "a success, or all steps are done, or no earlier attempt has an unknown outcome"
    RESUMABLE = "the record may be restarted or resumed"
    NOT_RESUMABLE = "the record must not be restarted"
    NO_STEP_MARKED = "no step of an operation is recorded"
    PROGRESS_AS_READ = "the progress is the one read before"
    GRACE_OVER = "the grace period has passed"
    TRIES_LEFT = "reconciliation tries are left"
    NO_TRIES_LEFT = "no reconciliation tries are left"
    DUE = "the time of the next check has come"
    UNATTENDED = "the last attempt began longer ago than UNATTENDED_LIMIT"
    ATTEMPTS_LEFT = "attempts are left"
    NO_ATTEMPTS_LEFT = "no attempts are left"
    PAUSE_NOT_OVER = "the pause after the last attempt, or attempts_span, has not passed"
    RETAINED = "retention has not ended"
    RETENTION_OVER = "retention has ended"
    DEFERRED = "the work is deferred"
    NOT_DEFERRED = "the work is not deferred"
    NOT_BEGUN = "no operation has begun"
    HAS_RUN = "an attempt has run"
    NO_TRACE = "no earlier attempt, step, downstream key or write of the acceptance can have had an effect"
    TRACE = "an earlier attempt, a step, a downstream key or a write of the acceptance may have had an effect"
    NOTHING_WRITTEN = "the acceptance committed no writes"
    AUDITED = "the record is kept for audit"
    NOT_AUDITED = "the record is not kept for audit"


class Event(StrEnum):
    """What happens to a record and may change its status."""

    REQUEST = "request"
    ANSWERED = "handler responded"
    NOT_EXECUTED = "attempt proven not executed"
    IN_DOUBT = "attempt with unknown outcome"
    LAPSE = "lease expired"
    TAKE_OVER = "take-over"
    EXTEND = "lease extended"
    BEGIN = "operation started"
    STEP = "step done"
    REPORT = "step reports progress"
    LANDED = "verdict: succeeded"
    NOT_LANDED = "verdict: not executed"
    STEP_LANDED = "verdict: step succeeded"
    STEP_NOT_LANDED = "verdict: step not executed"
    INCONCLUSIVE = "verdict: inconclusive"
    ASK = "check begins or message is sent"
    POSTPONE = "check postponed"
    UNATTENDED = "no process can settle it"
    EVIDENCE = "evidence: succeeded"
    STEP_EVIDENCE = "evidence: step succeeded"
    DENIAL = "webhook: not executed"
    DISMISS = "operator: not executed"
    STEP_DISMISS = "operator: step not executed"
    TRY_AGAIN = "operator: try again"
    EXPIRE = "soft expiry"
    EXPIRE_NOW = "operator: expire now"
    DELETE = "hard expiry"
    DEFER = "view defers"
    ACCEPT = "deferred without a view"
    PICK_UP = "worker takes the message"
    ENQUEUE = "not picked up in time"
    POLL = "status poll"
    ABANDON = "never picked up"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table. If `sources` is empty, there is no record yet."""

    cite: str
    sources: frozenset[Status]
    event: Event
    guards: frozenset[Guard]
    target: Status | Edge
    who: str


S, E, G = Status, Event, Guard
_RUNNER = "request or resumer"


def _row(
    cite: str,
    sources: Status | Iterable[Status],
    event: Event,
    guards: Iterable[Guard],
    target: Status | Edge,
    who: str,
) -> Transition:
    origin = frozenset({sources}) if isinstance(sources, Status) else frozenset(sources)
    return Transition(cite, origin, event, frozenset(guards), target, who)


TRANSITIONS: Final[tuple[Transition, ...]] = (
    _row("T1", (), E.REQUEST, (), S.IN_PROGRESS, "request"),
    _row("T2", S.IN_PROGRESS, E.REQUEST, (G.LEASE_LIVE, G.NOT_DEFERRED), Edge.SAME, "request"),
    _row("T2e", S.IN_PROGRESS, E.EXTEND, (G.TOKEN_MINE,), S.IN_PROGRESS, "owner"),
    _row("T3", S.IN_PROGRESS, E.ANSWERED, (G.TOKEN_MINE, G.SUCCESS_OR_UNTAINTED), S.COMPLETED, "owner"),
    _row("T3'", S.UNKNOWN, E.ANSWERED, (G.TOKEN_MINE, G.SUCCESS_OR_UNTAINTED), S.COMPLETED, "owner"),
    _row(
        "T4",
        S.IN_PROGRESS,
        E.NOT_EXECUTED,
        (G.TOKEN_MINE, G.UNTAINTED, G.NOT_DEFERRED, G.NO_STEP_MARKED),
        S.FAILED_RETRYABLE,
        "owner",
    ),
    _row("T5", S.IN_PROGRESS, E.IN_DOUBT, (G.TOKEN_MINE,), S.UNKNOWN, "owner"),
    _row("T6", S.IN_PROGRESS, E.LAPSE, (G.LEASE_OVER,), S.UNKNOWN, "sweeper or any request"),
    _row("T7", S.IN_PROGRESS, E.TAKE_OVER, (G.TOKEN_AS_READ, G.LEASE_OVER, G.RESUMABLE), S.IN_PROGRESS, _RUNNER),
    _row("T7", S.UNKNOWN, E.TAKE_OVER, (G.TOKEN_AS_READ, G.RESUMABLE), S.IN_PROGRESS, _RUNNER),
    _row("T7b", S.IN_PROGRESS, E.BEGIN, (G.TOKEN_MINE, G.NOT_BEGUN), S.IN_PROGRESS, "owner"),
    _row("T7p", S.IN_PROGRESS, E.STEP, (G.TOKEN_MINE, G.PROGRESS_AS_READ), S.IN_PROGRESS, "owner"),
    _row("T7r", S.IN_PROGRESS, E.REPORT, (G.TOKEN_MINE, G.PROGRESS_AS_READ), S.IN_PROGRESS, "owner"),
    _row("T8", S.UNKNOWN, E.REQUEST, (G.NOT_RESUMABLE, G.NOT_DEFERRED), Edge.SAME, "request"),
    _row("T9", S.UNKNOWN, E.LANDED, (G.TOKEN_AS_READ,), S.COMPLETED, "reconciler"),
    _row("T9s", S.UNKNOWN, E.STEP_LANDED, (G.TOKEN_AS_READ, G.PROGRESS_AS_READ), S.UNKNOWN, "reconciler"),
    _row(
        "T10",
        S.UNKNOWN,
        E.NOT_LANDED,
        (G.TOKEN_AS_READ, G.GRACE_OVER, G.NOT_DEFERRED),
        S.FAILED_RETRYABLE,
        "reconciler",
    ),
    _row("T10", S.UNKNOWN, E.NOT_LANDED, (G.TOKEN_AS_READ, G.GRACE_OVER, G.DEFERRED), S.PENDING, "reconciler"),
    _row(
        "T10s",
        S.UNKNOWN,
        E.STEP_NOT_LANDED,
        (G.TOKEN_AS_READ, G.PROGRESS_AS_READ, G.GRACE_OVER),
        S.UNKNOWN,
        "reconciler",
    ),
    _row("T11", S.UNKNOWN, E.INCONCLUSIVE, (G.TOKEN_AS_READ, G.TRIES_LEFT), S.UNKNOWN, "reconciler"),
    _row("T11q", S.UNKNOWN, E.ASK, (G.TOKEN_AS_READ, G.DUE), S.UNKNOWN, "reconciler or resumer"),
    _row("T11p", S.UNKNOWN, E.POSTPONE, (G.TOKEN_AS_READ,), S.UNKNOWN, "reconciler or resumer"),
    _row("T12", S.UNKNOWN, E.INCONCLUSIVE, (G.TOKEN_AS_READ, G.NO_TRIES_LEFT), S.DEAD_LETTER, "reconciler"),
    _row(
        "T12n",
        S.UNKNOWN,
        E.UNATTENDED,
        (G.TOKEN_AS_READ, G.GRACE_OVER, G.UNATTENDED),
        S.DEAD_LETTER,
        "reconciler, resumer or worker",
    ),
    _row("T13", S.SETTLEABLE, E.EVIDENCE, (), S.COMPLETED, "webhook or operator"),
    _row("T13'", S.IN_PROGRESS, E.EVIDENCE, (), Edge.SAME, "webhook"),
    _row("T13e", S.FAILED, E.EVIDENCE, (), Edge.SAME, "webhook or operator"),
    _row("T13''", S.IN_DOUBT, E.DENIAL, (G.HAS_RUN,), S.UNKNOWN, "webhook"),
    _row("T13s", S.IN_DOUBT, E.STEP_EVIDENCE, (G.PROGRESS_AS_READ,), S.UNKNOWN, "webhook or operator"),
    _row("T14", S.IN_DOUBT, E.DISMISS, (G.GRACE_OVER, G.NOTHING_WRITTEN), S.FAILED_RETRYABLE, "operator"),
    _row("T14s", S.IN_DOUBT, E.STEP_DISMISS, (G.PROGRESS_AS_READ, G.GRACE_OVER), S.UNKNOWN, "operator"),
    _row("T14'", S.DEAD_LETTER, E.TRY_AGAIN, (), S.UNKNOWN, "operator"),
    _row(
        "T15",
        S.FAILED_RETRYABLE,
        E.REQUEST,
        (G.TOKEN_AS_READ, G.RETAINED, G.ATTEMPTS_LEFT),
        S.IN_PROGRESS,
        "request",
    ),
    _row("T15", S.FAILED_RETRYABLE, E.REQUEST, (G.RETAINED, G.NO_ATTEMPTS_LEFT, G.NO_TRACE), S.FAILED, "request"),
    _row("T15d", S.FAILED_RETRYABLE, E.REQUEST, (G.RETAINED, G.NO_ATTEMPTS_LEFT, G.TRACE), S.DEAD_LETTER, "request"),
    _row("T15w", S.FAILED_RETRYABLE, E.REQUEST, (G.RETAINED, G.PAUSE_NOT_OVER), Edge.SAME, "request"),
    _row("T16", S.TERMINAL, E.REQUEST, (G.RETAINED,), Edge.SAME, "request"),
    _row(
        "T16'",
        S.ENDED | {S.FAILED_RETRYABLE},
        E.REQUEST,
        (G.RETENTION_OVER,),
        S.IN_PROGRESS,
        "request",
    ),
    _row("T17", S.DEAD_LETTER, E.REQUEST, (), Edge.SAME, "request"),
    _row("T18", S.TERMINAL, E.EXPIRE, (G.RETENTION_OVER, G.AUDITED), S.EXPIRED, "reaper"),
    _row("T18", S.TERMINAL, E.EXPIRE_NOW, (), S.EXPIRED, "operator"),
    _row("T19", S.TERMINAL, E.DELETE, (G.RETENTION_OVER, G.NOT_AUDITED), Edge.DELETED, "reaper"),
    _row("T19", S.EXPIRED, E.DELETE, (G.RETENTION_OVER,), Edge.DELETED, "reaper"),
    _row("T20", S.FAILED_RETRYABLE, E.DELETE, (G.RETENTION_OVER, G.GRACE_OVER), Edge.DELETED, "reaper"),
    _row("T21", (S.IN_PROGRESS, S.UNKNOWN, S.DEAD_LETTER), E.DELETE, (), Edge.SAME, "reaper"),
    _row("D0", S.IN_PROGRESS, E.DEFER, (G.TOKEN_MINE,), S.PENDING, "owner"),
    _row("D1", (), E.ACCEPT, (), S.PENDING, "caller"),
    _row("D2", S.PENDING, E.PICK_UP, (G.TOKEN_AS_READ,), S.IN_PROGRESS, "worker"),
    _row("D3", S.PENDING, E.ENQUEUE, (G.LEASE_OVER,), S.PENDING, "sweeper"),
    _row("D4", (S.PENDING, S.IN_PROGRESS, S.UNKNOWN), E.POLL, (G.DEFERRED,), Edge.SAME, "client"),
    _row("D4", (S.PENDING, S.IN_PROGRESS, S.UNKNOWN), E.REQUEST, (G.DEFERRED,), Edge.SAME, "client"),
    _row(
        "D5",
        S.IN_PROGRESS,
        E.NOT_EXECUTED,
        (G.TOKEN_MINE, G.UNTAINTED, G.DEFERRED, G.ATTEMPTS_LEFT),
        S.PENDING,
        "worker",
    ),
    _row("D6", S.PENDING, E.ABANDON, (G.RETENTION_OVER, G.NO_TRACE), S.FAILED, "reaper"),
    _row("D6d", S.PENDING, E.ABANDON, (G.RETENTION_OVER, G.TRACE), S.DEAD_LETTER, "reaper"),
    _row("A1", (), E.ANSWERED, (), S.COMPLETED, "request in atomic mode"),
)
