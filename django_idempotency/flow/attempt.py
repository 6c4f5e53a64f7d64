"""One attempt at a key, and what running code may ask of it."""

from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from uuid import UUID

from django_idempotency.core.decisions import Call, derived_key
from django_idempotency.exceptions import LostFence, Misplaced
from django_idempotency.store import attempts


@dataclass(slots=True)
class Attempt:
    """The right to run, once: whoever holds the token may end the record."""

    call: Call
    token: UUID
    using: str
    repeat: bool = False  # an earlier attempt existed
    finished: bool = False
    reached_out: bool = False  # a key for somebody else was derived
    in_doubt: str | None = None  # an operation: its step that began, and whose end nobody saw
    settled: bool = False  # an operation: each of its steps is done, so its answer is what they came to
    began: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """How long it has been running, for metrics; leases are the database's."""
        return monotonic() - self.began


class Held:
    """A key while its work runs."""

    _needs = "transaction='late'"

    def __init__(self, attempt: Attempt, *, late: bool) -> None:
        self._attempt = attempt
        self._late = late  # nothing is open while the work runs

    @property
    def key(self) -> str:
        return self._attempt.call.key

    @property
    def scope(self) -> str:
        return self._attempt.call.scope

    @property
    def reference(self) -> str:
        """Names the record without giving the key away; safe for logs and for columns of your own."""
        return str(self._attempt.call.id)

    @property
    def is_repeat(self) -> bool:
        """Whether an earlier attempt existed that had no effect or may be restarted."""
        return self._attempt.repeat

    def derive(self, step: str) -> str:
        """A key for a downstream call: the same for every attempt, another for every step."""
        self._attempt.reached_out = True
        return derived_key(self._attempt.call.id, step)

    def extend(self, lease: timedelta | None = None) -> None:
        """Start the lease anew; LostFence when the record is no longer this attempt's."""
        self._require_late("extend")
        call = self._attempt.call
        seconds = int((lease or call.policy.lease).total_seconds())
        grace = int(call.policy.grace.total_seconds())
        if not attempts.extend(call.scope, call.id, self._attempt.token, seconds, grace, self._attempt.using):
            raise LostFence

    def _require_late(self, name: str) -> None:
        if not self._late:
            raise Misplaced(f"{name}() needs {self._needs} here: now the whole handler is in one transaction.")
