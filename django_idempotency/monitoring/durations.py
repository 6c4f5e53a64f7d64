"""What the newest keys tell of each operation: how long it takes, its lease and its retention."""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyKey

NEWEST_RECORDS: Final = 5000
ENOUGH: Final = 100  # fewer runs have no p99
_COLUMNS: Final = ("operation", "status", "lease_seconds", "retention_seconds", "last_run_at", "completed_at")


@dataclass(slots=True)
class OperationStats:
    """The durations of one operation; lease and retention are those of its newest key."""

    lease: int
    retention: int | None
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        return self._percentile(50) if self.seconds else None

    @property
    def p99(self) -> float | None:
        return self._percentile(99) if len(self.seconds) >= ENOUGH else None

    @property
    def has_room(self) -> bool:
        """True if the lease is at least three times the p99, or too few runs are known."""
        return self.p99 is None or self.lease >= 3 * self.p99

    def _percentile(self, share: int) -> float:
        return sorted(self.seconds)[ceil(len(self.seconds) * share / 100) - 1]


def load_operations(using: str) -> dict[str, OperationStats]:
    """Return the operations of the newest keys. One short read backwards along the index of creation."""
    found: dict[str, OperationStats] = {}
    rows = IdempotencyKey.objects.using(using).order_by("-created_at").values_list(*_COLUMNS)[:NEWEST_RECORDS]
    for name, status, lease, retention, began, ended in rows:
        operation = found.setdefault(name, OperationStats(lease, retention))
        seconds = (ended - began).total_seconds() if began and ended and status == Status.COMPLETED else None
        # A run that took longer than its lease was settled later; in atomic mode one statement writes both times.
        if seconds is not None and 0 < seconds <= lease:
            operation.seconds.append(seconds)
    return found
