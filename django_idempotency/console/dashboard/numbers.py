"""The dashboard's numbers, read at a cost that does not grow with the table.

Open records are counted through small indexes. Finished ones are estimated from a fair sample, and marked as estimates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from time import monotonic
from typing import Final, TypeVar

from django_idempotency.conf import conf
from django_idempotency.console.dashboard.tally import Tally
from django_idempotency.console.filters import FAILURES
from django_idempotency.core.states import Status
from django_idempotency.flow.unattended import needs_person
from django_idempotency.monitoring.durations import OperationStats, load_operations
from django_idempotency.monitoring.findings import Finding
from django_idempotency.monitoring.health import get_longest_silence, load_job_runs
from django_idempotency.monitoring.rules import JobRun, Snapshot, find_problems
from django_idempotency.store import counts
from django_idempotency.store.dashboard import AGES, Group, Limits, Read, load_groups
from django_idempotency.store.records import alias

T = TypeVar("T")

LIMITS: Final = Limits(sample=5_000, newest=5_000, open=50_000)
FRESH_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Period:
    """How far the charts over time look back."""

    seconds: int
    slots: int

    @property
    def width(self) -> float:
        return self.seconds / self.slots


PERIODS: Final = {
    "hour": Period(3600, 60),
    "day": Period(86_400, 48),
    "week": Period(604_800, 42),
    "month": Period(2_592_000, 30),
}


@dataclass(frozen=True, slots=True)
class Work:
    """One operation: what its keys of the period came to, and what is open now."""

    created: int
    failed: int
    unknown: int
    dead_letters: int
    stats: OperationStats | None


@dataclass(frozen=True, slots=True)
class Cause:
    """Unknown outcomes and dead letters of one operation with one error."""

    operation: str
    error: str
    status: Status
    count: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything the page shows. Slots over time are given oldest first."""

    at: datetime  # when they were read, by the database's clock
    findings: list[Finding]
    exact: bool  # not an estimate
    exact_created: bool  # the same, of what was created in the period
    states: Mapping[Status, int]
    at_least: frozenset[Status]  # too many to be counted
    created: Mapping[Status, list[int]]
    doubts: Mapping[Status, list[int]]  # by AGES
    oldest_doubt: float | None
    overdue: int
    work: Mapping[str, Work]
    causes: list[Cause]  # the most frequent first
    operations: Mapping[str, OperationStats]
    runs: Mapping[str, JobRun]
    outcomes: Mapping[str, list[int]] | None  # None: not counted

    @property
    def is_empty(self) -> bool:
        return not any(self.states.values())


@dataclass(frozen=True, slots=True)
class _Source:
    """What the database said about a period. Each operation's figures are made from it."""

    period: Period
    read: Read
    operations: Mapping[str, OperationStats]
    runs: Mapping[str, JobRun]
    clocks_apart: float | None
    outcomes: Mapping[tuple[str, str], dict[int, int]] | None


_known: Final[dict[tuple[str, str], tuple[float, _Source]]] = {}
_asking: Final = Lock()


def load_figures(period: str, operation: str | None = None, using: str | None = None) -> Figures:
    """Return numbers that are at most some seconds old. One thread of a process reads them; the others wait for it."""
    using = using or alias()
    with _asking:
        made, source = _known.get((using, period), (0.0, None))
        if source is None or monotonic() - made > FRESH_SECONDS:
            source = _load_source(PERIODS[period], using)
            _known[using, period] = monotonic(), source
    return _make_figures(source, operation)


def clear_cache() -> None:
    """Discard what is cached, so that the next numbers are new."""
    with _asking:
        _known.clear()


def read_figures(period: Period, using: str, operation: str | None = None) -> Figures:
    """Read the numbers: three queries, and a fourth where outcomes are counted."""
    return _make_figures(_load_source(period, using), operation)


def _load_source(period: Period, using: str) -> _Source:
    silent = get_longest_silence().total_seconds()
    return _Source(
        period,
        load_groups(period.seconds, period.slots, silent, LIMITS, using),
        load_operations(using),
        *load_job_runs(using),
        counts.read_slots(period.seconds, period.slots, using) if conf.COUNT_OUTCOMES else None,
    )


def _make_figures(source: _Source, operation: str | None) -> Figures:
    period, everything = source.period, Tally(source.read, LIMITS, source.period.width)
    tally = Tally(source.read, LIMITS, period.width, operation)
    states = _count_states(everything)
    doubts = _count_doubts(tally, lambda _operation, status, age: (status, age))
    operations = {name: each for name, each in source.operations.items() if operation in (None, name)}
    doubtful = list(tally.groups("doubt", "dead"))
    return Figures(
        at=source.read.at,
        findings=find_problems(_take_snapshot(everything, states, source)),
        exact=tally.is_exact,
        exact_created=tally.covers_period and not tally.full,
        states=states if operation is None else _count_states(tally),
        at_least=tally.at_least,
        created=_count_created(tally, period),
        doubts={status: [doubts[status, age] for age in range(len(AGES) + 1)] for status in Status.IN_DOUBT},
        oldest_doubt=_find_oldest(group.oldest for group in doubtful),
        overdue=sum(group.overdue for group in tally.groups("lease")),
        work=_summarize_work(tally, operations),
        causes=_find_causes(doubtful),
        operations=operations,
        runs=source.runs,
        outcomes=_select_outcomes(source, operation),
    )


def _count_states(tally: Tally) -> dict[Status, int]:
    found = tally.count_all(lambda group: group.status)
    doubts = _count_doubts(tally, lambda _operation, status, _age: status)
    return {status: doubts[status] if status in Status.IN_DOUBT else found[status] for status in Status}


def _count_doubts(tally: Tally, key: Callable[[str, Status, int], T]) -> Counter[T]:
    """Count unknown outcomes and dead letters by a key.

    Each figure is a sum of the same numbers, so that all agree where these are estimates.
    """
    found: Counter[T] = Counter()
    for name, count in tally.count_all(lambda group: (group.operation, group.status, group.age_group)).items():
        found[key(*name)] += count
    return found


def _take_snapshot(tally: Tally, states: Mapping[Status, int], source: _Source) -> Snapshot:
    doubts, leases = list(tally.groups("doubt")), list(tally.groups("lease"))
    alone = [group for group in doubts if needs_person(group.operation, group.run_name, group.on_lost_lease)]
    return Snapshot(
        oldest_overdue=_find_oldest(group.oldest_overdue for group in leases),
        oldest_waiting=_find_oldest(group.oldest_waiting for group in leases),
        unknown=states[Status.UNKNOWN],
        unattended=sum(group.count for group in alone),
        oldest_unattended=_find_oldest(group.oldest for group in alone),
        oldest_unknown=_find_oldest(group.oldest for group in doubts),
        dead_letters=states[Status.DEAD_LETTER],
        oldest_dead_letter=_find_oldest(group.oldest for group in tally.groups("dead")),
        runs=source.runs,
        operations=source.operations,
        clocks_apart=source.clocks_apart,
    )


def _find_oldest(ages: Iterable[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def _count_created(tally: Tally, period: Period) -> dict[Status, list[int]]:
    found = tally.count_created(lambda group: (group.status, group.slot))
    return {status: [found[status, slot] for slot in reversed(range(period.slots))] for status in Status}


def _summarize_work(tally: Tally, operations: Mapping[str, OperationStats]) -> dict[str, Work]:
    created = tally.count_created(lambda group: (group.operation, group.failed or group.status in FAILURES))
    open_now = _count_doubts(tally, lambda operation, status, _age: (operation, status))
    names = {*operations, *(name for name, _ in created), *(name for name, status in open_now if status in Status.OPEN)}
    return {
        name: Work(
            created[name, True] + created[name, False],
            created[name, True],
            open_now[name, Status.UNKNOWN],
            open_now[name, Status.DEAD_LETTER],
            operations.get(name),
        )
        for name in sorted(names)
    }


def _find_causes(doubtful: Iterable[Group]) -> list[Cause]:
    found: dict[tuple[str, str, Status], Cause] = {}
    for group in doubtful:
        name = group.operation, group.error, group.status
        before = found.get(name, Cause(*name, count=0, oldest=0.0))
        found[name] = Cause(*name, before.count + group.count, max(before.oldest, group.oldest))
    return sorted(found.values(), key=lambda cause: -cause.count)


def _select_outcomes(source: _Source, operation: str | None) -> dict[str, list[int]] | None:
    if source.outcomes is None:
        return None
    found: dict[str, list[int]] = {}
    for (name, outcome), slots in source.outcomes.items():
        if operation in (None, name):
            values = found.setdefault(outcome, [0] * source.period.slots)
            for slot, count in slots.items():
                values[-1 - slot] += count
    return found
