"""What the newest keys say about each operation: how long it takes, its lease, and how long its answers are kept."""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyKey

NEWEST: Final = 5000
ENOUGH: Final = 100  # fewer runs have no slowest hundredth
_COLUMNS: Final = ("operation", "status", "lease_seconds", "retention_seconds", "last_run_at", "completed_at")


@dataclass(slots=True)
class Operation:
    """The first key seen is the newest: what it says about lease and retention holds."""

    lease: int
    retention: int | None
    seconds: list[float] = field(default_factory=list)

    @property
    def half(self) -> float | None:
        """Half of the runs took no longer."""
        return self._longest_of(0.5) if self.seconds else None

    @property
    def slowest_hundredth(self) -> float | None:
        return self._longest_of(0.99) if len(self.seconds) >= ENOUGH else None

    @property
    def has_room(self) -> bool:
        """Whether the lease is at least three times what the slowest hundredth takes."""
        slow = self.slowest_hundredth
        return slow is None or self.lease >= 3 * slow

    def _longest_of(self, share: float) -> float:
        return sorted(self.seconds)[ceil(len(self.seconds) * share) - 1]


def operations(using: str) -> dict[str, Operation]:
    """One short read backwards along the index of creation."""
    found: dict[str, Operation] = {}
    rows = IdempotencyKey.objects.using(using).order_by("-created_at").values_list(*_COLUMNS)[:NEWEST]
    for name, status, lease, retention, began, ended in rows:
        operation = found.setdefault(name, Operation(lease, retention))
        seconds = (ended - began).total_seconds() if began and ended and status == Status.COMPLETED else None
        # What took longer was settled by somebody else; in atomic mode one statement writes both times.
        if seconds is not None and 0 < seconds <= lease:
            operation.seconds.append(seconds)
    return found
