"""The questions of the dashboard, answered in numbers at a cost that does not grow with the table.

What is open is counted through small indexes. What has ended is estimated from a fair sample, and the answer says so.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, Final

from django_idempotency.conf import conf
from django_idempotency.core.states import Status
from django_idempotency.monitoring.durations import Operation, operations
from django_idempotency.monitoring.health import duties
from django_idempotency.store import counts
from django_idempotency.store.dashboard import Row, records
from django_idempotency.store.database import alias
from django_idempotency.store.dialects import place_in_id_order

SAMPLE: Final = 5_000
MOST: Final = 5_000  # of each kind of open record
FRESH_SECONDS: Final = 15.0
PARTS: Final = {  # of the open records, by the index that finds them
    Status.PENDING: "lease",
    Status.IN_PROGRESS: "lease",
    Status.UNKNOWN: "doubt",
    Status.DEAD_LETTER: "dead",
}
AGES: Final = (300, 3600, 21_600, 86_400, 604_800)  # the upper ends of the doubts' ages; the last one is open


@dataclass(frozen=True, slots=True)
class Period:
    """What the pictures over time look back on."""

    seconds: int
    slots: int


PERIODS: Final = {"day": Period(86_400, 48), "week": Period(604_800, 42)}


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything the page shows. Slots over time are given oldest first."""

    exact: bool  # not an estimate
    states: Mapping[Status, int]
    at_least: frozenset[Status]  # too many to be counted
    created: Mapping[Status, list[int]]
    doubts: Mapping[Status, list[int]]  # by AGES
    oldest_doubt: float | None
    overdue: int
    longest_overdue: float | None
    operations: Mapping[str, Operation]
    duties: list[dict[str, Any]]
    outcomes: Mapping[str, list[int]] | None  # None: not counted


_known: Final[dict[tuple[str, str], tuple[float, Figures]]] = {}
_asking: Final = Lock()


def figures(period: str, using: str | None = None) -> Figures:
    """At most some seconds old; one thread of a process asks, and the others wait for its answer."""
    using = using or alias()
    with _asking:
        made, known = _known.get((using, period), (0.0, None))
        if known is None or monotonic() - made > FRESH_SECONDS:
            known = ask(PERIODS[period], using)
            _known[using, period] = monotonic(), known
        return known


def forget() -> None:
    """So that the next answer is a new one."""
    with _asking:
        _known.clear()


def ask(period: Period, using: str) -> Figures:
    """Four queries; a fifth where outcomes are counted."""
    found = records(SAMPLE, MOST, using)
    full = {part for part in ("lease", "doubt", "dead") if len(found[part]) == MOST}
    scale = _scale(found["sample"], using)
    open_rows = [row for part in ("lease", "doubt", "dead") if part not in full for row in found[part]]
    sampled = [row for row in found["sample"] if PARTS.get(row.status) in full or row.status not in Status.OPEN]
    overdue = [-row.remaining for row in found["lease"] if row.remaining <= 0]
    doubtful = [*found["doubt"], *found["dead"]]
    return Figures(
        exact=scale == 1.0,
        states=_states(open_rows, sampled, scale),
        at_least=frozenset(status for status, part in PARTS.items() if part in full and scale > 1.0),
        created=_created(open_rows, sampled, scale, period),
        doubts={status: _by_age(row.age for row in doubtful if row.status is status) for status in Status.IN_DOUBT},
        oldest_doubt=max((row.age for row in doubtful), default=None),
        overdue=len(overdue),
        longest_overdue=max(overdue, default=None),
        operations=operations(using),
        duties=duties(using),
        outcomes=_outcomes(period, using) if conf.COUNT_OUTCOMES else None,
    )


def _scale(sample: list[Row], using: str) -> float:
    """How many records stand behind each one of the sample: one, where the sample is the whole table."""
    return 1.0 if len(sample) < SAMPLE else max(1 / place_in_id_order(sample[-1].id, using), 1.0)


def _states(open_rows: list[Row], sampled: list[Row], scale: float) -> dict[Status, int]:
    counted, estimated = Counter(row.status for row in open_rows), Counter(row.status for row in sampled)
    return {status: counted[status] + round(estimated[status] * scale) for status in Status}


def _created(open_rows: list[Row], sampled: list[Row], scale: float, period: Period) -> dict[Status, list[int]]:
    slots = {status: [0.0] * period.slots for status in Status}
    for weight, rows in ((1.0, open_rows), (scale, sampled)):
        for row in rows:
            if row.age < period.seconds:
                slots[row.status][-1 - max(int(row.age / period.seconds * period.slots), 0)] += weight
    return {status: [round(value) for value in values] for status, values in slots.items()}


def _by_age(ages: Iterable[float]) -> list[int]:
    found = [0] * (len(AGES) + 1)
    for age in ages:
        found[sum(age >= end for end in AGES)] += 1
    return found


def _outcomes(period: Period, using: str) -> dict[str, list[int]]:
    found = counts.over_time(period.seconds, period.slots, using)
    return {outcome: [slots.get(slot, 0) for slot in reversed(range(period.slots))] for outcome, slots in found.items()}
