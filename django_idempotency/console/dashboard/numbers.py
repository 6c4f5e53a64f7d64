"""The dashboard's numbers, read at a cost that does not grow with the table.

Open records are counted through small indexes. Finished ones are estimated from a fair sample, and marked as estimates.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final

from django_idempotency.conf import conf
from django_idempotency.core.states import Status
from django_idempotency.flow.unattended import lacks_reconciler
from django_idempotency.monitoring.durations import OperationStats, load_operations
from django_idempotency.monitoring.findings import Finding
from django_idempotency.monitoring.health import get_longest_silence, load_job_runs
from django_idempotency.monitoring.rules import JobRun, Snapshot, find_problems
from django_idempotency.store import counts
from django_idempotency.store.dashboard import Row, load_records
from django_idempotency.store.dialects import place_in_id_order
from django_idempotency.store.records import alias

SAMPLE: Final = 5_000
MOST: Final = 5_000  # of each kind of open record
FRESH_SECONDS: Final = 15.0
PARTS: Final = {  # of the open records, by the index that finds them
    **dict.fromkeys(Status.LEASED, "lease"),
    Status.UNKNOWN: "doubt",
    Status.DEAD_LETTER: "dead",
}
AGES: Final = (300, 3600, 21_600, 86_400, 604_800)  # upper ends of the age groups; the last group has none


@dataclass(frozen=True, slots=True)
class Period:
    """How far the charts over time look back."""

    seconds: int
    slots: int


PERIODS: Final = {"day": Period(86_400, 48), "week": Period(604_800, 42)}


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything the page shows. Slots over time are given oldest first."""

    findings: list[Finding]
    exact: bool  # not an estimate
    states: Mapping[Status, int]
    at_least: frozenset[Status]  # too many to be counted
    created: Mapping[Status, list[int]]
    doubts: Mapping[Status, list[int]]  # by AGES
    oldest_doubt: float | None
    overdue: int
    operations: Mapping[str, OperationStats]
    runs: Mapping[str, JobRun]
    outcomes: Mapping[str, list[int]] | None  # None: not counted


_known: Final[dict[tuple[str, str], tuple[float, Figures]]] = {}
_asking: Final = Lock()


def load_figures(period: str, using: str | None = None) -> Figures:
    """Return numbers that are at most some seconds old. One thread of a process reads them; the others wait for it."""
    using = using or alias()
    with _asking:
        made, known = _known.get((using, period), (0.0, None))
        if known is None or monotonic() - made > FRESH_SECONDS:
            known = read_figures(PERIODS[period], using)
            _known[using, period] = monotonic(), known
        return known


def clear_cache() -> None:
    """Discard what is cached, so that the next numbers are new."""
    with _asking:
        _known.clear()


def read_figures(period: Period, using: str) -> Figures:
    """Read the numbers: three queries, and a fourth where outcomes are counted."""
    found = load_records(SAMPLE, MOST, using)
    seen, runs = load_operations(using), load_job_runs(using)
    full = {part for part in ("lease", "doubt", "dead") if len(found[part]) == MOST}
    scale = _estimate_scale(found["sample"], using)
    open_rows = [row for part in ("lease", "doubt", "dead") if part not in full for row in found[part]]
    sampled = [row for row in found["sample"] if PARTS.get(row.status) in full or row.status not in Status.OPEN]
    doubtful = [*found["doubt"], *found["dead"]]
    states = _count_states(open_rows, sampled, scale)
    return Figures(
        findings=find_problems(_take_snapshot(found, states, seen, *runs)),
        exact=scale == 1.0,
        states=states,
        at_least=frozenset(status for status, part in PARTS.items() if part in full and scale > 1.0),
        created=_count_created(open_rows, sampled, scale, period),
        doubts={
            status: _count_by_age(row.age for row in doubtful if row.status is status) for status in Status.IN_DOUBT
        },
        oldest_doubt=_find_oldest(row.age for row in doubtful),
        overdue=sum(row.remaining <= 0 for row in found["lease"]),
        operations=seen,
        runs=runs[0],
        outcomes=_load_outcomes(period, using) if conf.COUNT_OUTCOMES else None,
    )


def _take_snapshot(
    found: Mapping[str, list[Row]],
    states: Mapping[Status, int],
    seen: Mapping[str, OperationStats],
    runs: Mapping[str, JobRun],
    clocks_apart: float | None,
) -> Snapshot:
    alone = [row.age for row in found["doubt"] if lacks_reconciler(row.operation, row.run_name, row.on_lost_lease)]
    return Snapshot(
        oldest_overdue=_find_oldest(-row.remaining for row in found["lease"] if row.remaining <= 0),
        oldest_waiting=_find_oldest(row.idle for row in found["lease"] if row.idle is not None and _is_waiting(row)),
        unknown=states[Status.UNKNOWN],
        unattended=len(alone),
        oldest_unattended=_find_oldest(alone),
        oldest_unknown=_find_oldest(row.age for row in found["doubt"]),
        dead_letters=states[Status.DEAD_LETTER],
        oldest_dead_letter=_find_oldest(row.age for row in found["dead"]),
        runs=runs,
        operations=seen,
        clocks_apart=clocks_apart,
    )


def _is_waiting(row: Row) -> bool:
    """True for accepted work that no worker has begun; work that was put back has its turn later."""
    was_put_back = row.error != ""
    idle = row.idle or 0.0
    return row.status is Status.PENDING and (not was_put_back or idle >= get_longest_silence().total_seconds())


def _find_oldest(ages: Iterable[float]) -> float | None:
    return max(ages, default=None)


def _estimate_scale(sample: list[Row], using: str) -> float:
    """Return how many records each one of the sample represents: one where the sample is the whole table."""
    return 1.0 if len(sample) < SAMPLE else max(1 / place_in_id_order(sample[-1].id, using), 1.0)


def _count_states(open_rows: list[Row], sampled: list[Row], scale: float) -> dict[Status, int]:
    counted, estimated = Counter(row.status for row in open_rows), Counter(row.status for row in sampled)
    return {status: counted[status] + round(estimated[status] * scale) for status in Status}


def _count_created(open_rows: list[Row], sampled: list[Row], scale: float, period: Period) -> dict[Status, list[int]]:
    slots = {status: [0.0] * period.slots for status in Status}
    for weight, rows in ((1.0, open_rows), (scale, sampled)):
        for row in rows:
            if row.age < period.seconds:
                slots[row.status][-1 - max(int(row.age / period.seconds * period.slots), 0)] += weight
    return {status: [round(value) for value in values] for status, values in slots.items()}


def _count_by_age(ages: Iterable[float]) -> list[int]:
    found = [0] * (len(AGES) + 1)
    for age in ages:
        found[sum(age >= end for end in AGES)] += 1
    return found


def _load_outcomes(period: Period, using: str) -> dict[str, list[int]]:
    found = counts.read_slots(period.seconds, period.slots, using)
    return {outcome: [slots.get(slot, 0) for slot in reversed(range(period.slots))] for outcome, slots in found.items()}
