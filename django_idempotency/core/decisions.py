"""Decide what a request gets, from the call and the record alone."""

from dataclasses import dataclass
from math import ceil
from typing import Final
from uuid import UUID

from django_idempotency.core.calls import Call
from django_idempotency.core.effects import Effect, effect_of
from django_idempotency.core.policy import AfterExpiry, Policy
from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import LostLease, Status
from django_idempotency.exceptions import UnreadableFingerprint

SHORTEST_CHECK: Final = 10  # seconds after which an unknown outcome is worth asking for again; a check may be due now
LONGEST_CHECK: Final = 3600  # a webhook or an operator may be faster than the reconciler


@dataclass(frozen=True, slots=True)
class Record:
    """A row as it was read. Times are seconds left by the database's clock; None if the column is empty."""

    id: UUID
    scope: str
    key: str
    status: Status
    fingerprint: str
    token: UUID | None = None
    attempts: int = 1
    tainted: bool = False
    derived: bool = False  # a downstream key was derived, and it is not proven that it did nothing
    wrote: bool = False  # the transaction that accepted deferred work committed writes
    steps_done: int = 0
    deferred: bool = False
    namespace: str = ""  # in which its downstream keys are derived
    on_lost_lease: LostLease = LostLease.UNKNOWN
    lease_left: float | None = None
    check_in: float | None = None  # until the reconciler's next check of an unknown outcome
    grace_left: float | None = None
    expires_in: float | None = None
    ran_ago: float | None = None  # since its last attempt began
    age: float | None = None
    reply: Reply | None = None

    def ref(self, using: str) -> Ref:
        return Ref(self.scope, self.id, using)

    @property
    def retention_over(self) -> bool:
        return self.status is Status.EXPIRED or (
            self.status in (Status.COMPLETED, Status.FAILED, Status.FAILED_RETRYABLE)
            and self.expires_in is not None
            and self.expires_in <= 0
        )

    @property
    def effect(self) -> Effect:
        """What is known about the effect of the request that the record was claimed for."""
        status = None if self.reply is None else self.reply.status
        return effect_of(self.status, status, self.grace_left, traced=self.traced)

    @property
    def traced(self) -> bool:
        """True if an earlier attempt, a step, a downstream key or an acceptance may have left a part of the effect."""
        return self.tainted or self.derived or self.wrote or self.steps_done > 0

    @property
    def lease_over(self) -> bool:
        return self.lease_left is not None and self.lease_left <= 0

    @property
    def resumable(self) -> bool:
        return self.on_lost_lease is not LostLease.UNKNOWN


@dataclass(frozen=True, slots=True)
class Execute:
    """Claim the key: there is no record (T1)."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Claim a record again that was proven not executed (T15) or has expired (T16')."""

    record: Record


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Claim a record whose attempt was lost and may be restarted (T7)."""

    record: Record


@dataclass(frozen=True, slots=True)
class Lapse:
    """Make the outcome unknown because the lease expired, then decide again (T6)."""

    record: Record


@dataclass(frozen=True, slots=True)
class Exhaust:
    """Store an error response because all attempts are used up, then decide again (T15)."""

    record: Record


@dataclass(frozen=True, slots=True)
class Replay:
    """Send the stored response (T16)."""

    record: Record
    reply: Reply


@dataclass(frozen=True, slots=True)
class InFlight:
    """Report that the first request is still running (T2). In atomic mode there is no record yet."""

    record: Record | None
    retry_after: int


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Report that nothing was executed, and how long to wait: a retry before that is not counted (T15w)."""

    record: Record
    retry_after: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """Report that a worker does the work (D4)."""

    record: Record
    retry_after: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Report that the key belongs to a different request."""

    record: Record
    differs_in: tuple[str, ...] = ()  # the parts that differ, as far as they are known


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Report that the outcome is not known (T8), or that the reconciler has given up (`dead`, T17)."""

    record: Record
    dead: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """Report that the key has expired and the endpoint rejects expired keys (T16')."""

    record: Record


Move = Execute | Restart | TakeOver | Lapse | Exhaust
Answer = Replay | InFlight | TooEarly | Accepted | Mismatch | InDoubt | Gone
Decision = Move | Answer


def decide(record: Record | None, call: Call) -> Decision:
    """Return what the request gets. Expiry is checked first, then the fingerprint, then the status."""
    if record is None:
        return Execute()
    policy = call.policy
    if record.retention_over:
        return Gone(record) if policy.after_expiry is AfterExpiry.GONE else Restart(record)
    try:
        if not call.matches(record.fingerprint):
            return Mismatch(record)
    except UnreadableFingerprint:
        return InDoubt(record, dead=False)
    match record.status:
        case Status.IN_PROGRESS if record.lease_over:
            return TakeOver(record) if record.resumable and not record.deferred else Lapse(record)
        case Status.UNKNOWN if record.resumable and not record.deferred:
            return InDoubt(record, dead=False) if seconds_to_pause(record, policy) > 0 else TakeOver(record)
        case Status.DEAD_LETTER:
            return InDoubt(record, dead=True)
        case Status.PENDING | Status.IN_PROGRESS | Status.UNKNOWN if record.deferred:
            return Accepted(record, _retry_after(record, policy))
        case Status.IN_PROGRESS:
            return InFlight(record, _retry_after(record, policy))
        case Status.UNKNOWN:
            return InDoubt(record, dead=False)
        case Status.FAILED_RETRYABLE:
            return _decide_retry(record, policy)
        case _:
            assert record.reply is not None  # noqa: S101 - a CHECK constraint holds it; here for the type checker
            return Replay(record, record.reply)


def _decide_retry(record: Record, policy: Policy) -> TooEarly | Restart | Exhaust:
    """Spread the attempts over time, so that a short outage does not use them up."""
    left, used_up = seconds_to_pause(record, policy), record.attempts >= policy.attempts
    if used_up and record.age is not None:
        left = max(left, policy.attempts_span.total_seconds() - record.age)
    if left > 0:
        return TooEarly(record, ceil(left))
    return Exhaust(record) if used_up else Restart(record)


def seconds_to_pause(record: Record, policy: Policy) -> float:
    """Return how long a retry has to wait before it may run and counts."""
    return 0.0 if record.ran_ago is None else policy.pause_after(record.attempts) - record.ran_ago


def seconds_to_outcome(record: Record | None, policy: Policy) -> int:
    """Return the Retry-After of an unknown outcome: until the reconciler's next check, or until a retry takes over.

    A dead letter waits for a person.
    """
    if record is None or record.check_in is None:
        dead = record is not None and record.status is Status.DEAD_LETTER
        return LONGEST_CHECK if dead else SHORTEST_CHECK
    if record.resumable and not record.deferred:
        return max(1, ceil(seconds_to_pause(record, policy)))
    return min(max(SHORTEST_CHECK, ceil(record.check_in)), LONGEST_CHECK)


def _retry_after(record: Record, policy: Policy) -> int:
    """Return the Retry-After in whole seconds: the rest of the lease, at most the policy's hint."""
    hint = policy.retry_hint.total_seconds()
    left = hint if record.lease_left is None else min(hint, record.lease_left)
    return max(1, ceil(left))
