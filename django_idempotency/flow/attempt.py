"""One attempt at a key, and what running code may ask of it."""

from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Final
from uuid import UUID

from django_idempotency.conf import conf, default_namespace
from django_idempotency.core.calls import Call, digest_namespace
from django_idempotency.core.policy import Policy
from django_idempotency.core.progress import Moment
from django_idempotency.core.refs import Ref, derive_key
from django_idempotency.core.validation import require_namespace
from django_idempotency.exceptions import LostFence, Misplaced
from django_idempotency.store import attempts

MOST_DERIVED: Final = 50  # names of steps that an attempt remembers


def digest_of_namespace() -> str:
    """Return the digest that a record made now will hold; ValueError if the project's function returns no text.

    Called once per claim, before the first statement, in the thread whose connection makes the claim.
    """
    given = conf.NAMESPACE
    if not callable(given):
        return digest_namespace(given or default_namespace())
    returned = given()
    try:
        return digest_namespace(require_namespace(returned))
    except ValueError as error:
        raise ValueError(f"IDEMPOTENCY['NAMESPACE']: what the function returns {error}") from error


@dataclass(frozen=True, slots=True)
class Lease:
    """How long an attempt may run, and how long after that one of its messages may still arrive."""

    seconds: int
    grace: int
    heartbeat: timedelta | None = None  # for how long in all the lease is renewed while the attempt runs

    @classmethod
    def of(cls, policy: Policy) -> "Lease":
        return cls(int(policy.lease.total_seconds()), int(policy.grace.total_seconds()), policy.heartbeat)


@dataclass(slots=True)
class Attempt:
    """The right to run, once: the holder of the token may end the record."""

    call: Call
    token: UUID
    using: str
    namespace: str  # as the record holds it
    repeat: bool = False  # an earlier attempt existed
    number: int = 1  # of this attempt, among those of the record
    age: float = 0.0  # seconds that the record had existed when this attempt began, by the database's clock
    finished: bool = False
    failed_again: Exception | None = None  # what a repeat of the domain writes raised, after a deadlock for example
    derived: tuple[str, ...] = ()  # the first steps whose downstream keys the work asked for
    in_doubt: str | None = None  # of an operation: its step that began, and whose end was not seen
    settled: bool = False  # of an operation: every step is done, so its response is their result
    stored_lease: Lease | None = None  # of an operation without its request: what the record says
    began: float = field(default_factory=monotonic)
    extended_until: float | None = None  # by this process's clock

    @property
    def ref(self) -> Ref:
        return self.call.ref(self.using)

    def derive(self, step: str) -> str:
        """Return the downstream key of a step."""
        return derive_key(self.call.id, self.namespace, step)

    @property
    def lease(self) -> Lease:
        return self.stored_lease or Lease.of(self.call.policy)

    @property
    def limit(self) -> float:
        """Seconds that the store may take for one statement of this attempt."""
        return self.call.policy.claim_limit.total_seconds()

    @property
    def seconds(self) -> float:
        """How long it has been running, for metrics; leases go by the database's clock."""
        return monotonic() - self.began

    @property
    def moment(self) -> Moment:
        """The time now, as the steps of an operation record it. A wrong clock of this process does not matter."""
        return Moment(int((self.age + self.seconds) * 1000), self.number)

    @property
    def lease_left(self) -> float:
        """Seconds until the lease is over, as this process counts them: for waiting, never for a decision."""
        return (self.extended_until or self.began + self.lease.seconds) - monotonic()

    def extend(self, seconds: int) -> bool:
        """Start the lease anew. False if another attempt owns the record now."""
        until = monotonic() + seconds
        extended = attempts.extend(self.ref, self.token, seconds, self.lease.grace)
        if extended:
            self.extended_until = until
        return extended


class KeyHandle:
    """A key while its work runs: the part that views and `once` share."""

    _needs = "transaction='late'"

    def __init__(self, attempt: Attempt, *, late: bool) -> None:
        self._attempt = attempt
        self._late = late  # no transaction is open while the work runs

    @property
    def key(self) -> str:
        return self._attempt.call.key

    @property
    def scope(self) -> str:
        return self._attempt.call.scope

    @property
    def reference(self) -> str:
        """Names the record without revealing the key; safe for logs and for your own columns."""
        return str(self._attempt.call.id)

    @property
    def is_repeat(self) -> bool:
        """True if there was an earlier attempt, which had no effect or may be restarted."""
        return self._attempt.repeat

    def derive(self, step: str) -> str:
        """Return the key of a downstream call: equal for every attempt, different for every step."""
        known = self._attempt.derived
        if len(known) < MOST_DERIVED and step not in known:
            self._attempt.derived = (*known, step)
        return self._attempt.derive(step)

    def extend(self, lease: timedelta | None = None) -> None:
        """Start the lease anew; LostFence if another attempt owns the record now."""
        self._require_late("extend")
        seconds = int((lease or self._attempt.call.policy.lease).total_seconds())
        if not self._attempt.extend(seconds):
            raise LostFence

    def _require_late(self, name: str) -> None:
        if not self._late:
            raise Misplaced(f"{name}() needs {self._needs} here: now the whole handler is in one transaction.")
