"""Counts groups of records: exactly where the read has all of them, else as an estimate from the sample."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from django_idempotency.core.states import Status
from django_idempotency.store.dashboard import Group, Limits, Read

T = TypeVar("T", bound=Hashable)
Key = Callable[[Group], T]
Weighted = Iterable[tuple[Group, float]]

PARTS: Final = {  # of the open records, by the index that finds them
    **dict.fromkeys(Status.LEASED, "lease"),
    Status.UNKNOWN: "doubt",
    Status.DEAD_LETTER: "dead",
}
OPEN_PARTS: Final = ("lease", "doubt", "dead")


@dataclass(frozen=True, slots=True)
class Tally:
    """One read, for one operation or for all, and what it can tell."""

    read: Read
    limits: Limits
    width: float  # seconds of a slot
    operation: str | None = None

    @property
    def is_exact(self) -> bool:
        return self.read.scale == 1.0

    @property
    def full(self) -> frozenset[str]:
        """The kinds of open records of which there may be more than were read."""
        return frozenset(part for part in OPEN_PARTS if self.read.count(part) >= self.limits.open)

    @property
    def at_least(self) -> frozenset[Status]:
        """The states whose records were not all counted."""
        return frozenset(status for status, part in PARTS.items() if part in self.full)

    @property
    def covered(self) -> float:
        """How many of the newest slots have all their records among the newest ones."""
        if self.read.count("newest") < self.limits.newest:
            return float("inf")
        return max(group.oldest for group in self.read.parts["newest"]) // self.width

    @property
    def covers_period(self) -> bool:
        """True if what was created in the period is counted, not estimated."""
        return self.is_exact or self.covered == float("inf")

    def groups(self, *parts: str) -> Iterator[Group]:
        """Return the groups of these parts, of the chosen operation."""
        for part in parts:
            for group in self.read.parts[part]:
                if self.operation is None or group.operation == self.operation:
                    yield group

    def count_all(self, key: "Key[T]") -> Counter[T]:
        """Count the records of the table by a key."""
        sampled = [(group, self.read.scale) for group in self.groups("sample")]
        return self._count(key, sampled)

    def count_created(self, key: "Key[T]") -> Counter[T]:
        """Count the records that were created in the period by a key."""
        covered = self.covered
        newest = [(group, 1.0) for group in self.groups("newest") if 0 <= group.slot < covered]
        older = [(group, self.read.scale) for group in self.groups("sample") if group.slot >= covered]
        return self._count(key, [*newest, *older], in_period=True)

    def _count(self, key: "Key[T]", others: Weighted, *, in_period: bool = False) -> Counter[T]:
        """Take open records from the parts that have them all; of a full part what was read is the least."""
        full = self.full
        rows = [group for group in self.groups(*OPEN_PARTS) if group.slot >= 0 or not in_period]
        known = _add(key, ((group, 1.0) for group in rows if PARTS[group.status] not in full))
        least = _add(key, ((group, 1.0) for group in rows if PARTS[group.status] in full))
        rest = _add(key, ((group, weight) for group, weight in others if PARTS.get(group.status) in {None, *full}))
        return known + Counter({name: max(rest[name], least[name]) for name in {*rest, *least}})


def _add(key: "Key[T]", groups: Weighted) -> Counter[T]:
    found: dict[T, float] = {}
    for group, weight in groups:
        name = key(group)
        found[name] = found.get(name, 0.0) + group.count * weight
    return Counter({name: round(value) for name, value in found.items()})
