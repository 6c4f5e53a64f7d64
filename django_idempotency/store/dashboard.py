"""The records behind the dashboard, grouped by the database in one bounded read: the open ones, the newest ones and a
fair sample of all.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from django_idempotency.core.audit import Kind
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement, place_in_id_order

AGES: Final = (300, 3600, 21_600, 86_400, 604_800)  # upper ends of the age groups; the last group has none

_AGE_GROUP: Final = "".join(
    [
        f"CASE WHEN age < {AGES[0]} THEN 0 ",
        *(f"WHEN age < {high} THEN {number} " for number, (_, high) in enumerate(pairwise(AGES), start=1)),
        f"ELSE {len(AGES)} END",
    ]
)


def _group(part: str, columns: str, rows: str) -> str:
    """Group some rows of the table by all columns but those of time. The limit is inside: no other row is read."""
    return f"""
        SELECT '{part}' AS part, status, operation, run_name, on_lost_lease, error, failed, slot, age_group,
               COUNT(*) AS number, MAX(age) AS age, MAX(overdue) AS overdue, MAX(waiting) AS waiting,
               SUM(CASE WHEN overdue > 0 THEN 1 ELSE 0 END) AS late
        FROM (
            SELECT {columns}, age, overdue, waiting,
                   CASE WHEN age < %(seconds)s THEN FLOOR(age / %(width)s) ELSE -1 END AS slot,
                   {_AGE_GROUP} AS age_group
            FROM (
                SELECT status, operation, run_name, on_lost_lease, last_error_code, response_status,
                       -({{left created_at}}) AS age,
                       CASE WHEN locked_until <= {{now}} THEN -({{left locked_until}}) END AS overdue,
                       CASE WHEN status = 'pending' AND (last_error_code = '' OR -({{left last_run_at}}) >= %(silent)s)
                            THEN -({{left last_run_at}}) END AS waiting
                FROM idempotency_key {rows}
            ) AS {part}_read
        ) AS {part}_seen
        GROUP BY status, operation, run_name, on_lost_lease, error, failed, slot, age_group
    """


_NO_NAMES: Final = "status, operation, '' AS run_name, '' AS on_lost_lease, '' AS error"
_FAILED: Final = f"{_NO_NAMES}, CASE WHEN response_status >= 500 THEN 1 ELSE 0 END AS failed"
_NAMES: Final = "status, operation, run_name, on_lost_lease, last_error_code AS error, 0 AS failed"
_DEAD: Final = f"id IN (SELECT record_id FROM idempotency_event WHERE kind = '{Kind.DEAD_LETTER}')"
# An id is a digest, so the first ids in order are a fair sample; and always the same one, which stays in memory.
GROUPS = Statement(
    "",
    f"""
    SELECT part, status, operation, run_name, on_lost_lease, error, failed, slot, age_group, number, age, overdue,
           waiting, late, (SELECT id FROM idempotency_key ORDER BY id LIMIT 1 OFFSET %(last)s) AS last_id,
           {{now}} AS read_at
    FROM (
        {_group("sample", _FAILED, "ORDER BY id LIMIT %(sample)s")}
        UNION ALL
        {_group("newest", _FAILED, "WHERE created_at > {now + %(since)s} ORDER BY created_at DESC LIMIT %(newest)s")}
        UNION ALL
        {_group("lease", f"{_NO_NAMES}, 0 AS failed", "WHERE locked_until IS NOT NULL LIMIT %(most)s")}
        UNION ALL
        {_group("doubt", _NAMES, "WHERE reconcile_after IS NOT NULL LIMIT %(most)s")}
        UNION ALL
        {_group("dead", _NAMES, f"WHERE status = 'dead_letter' AND {_DEAD} LIMIT %(most)s")}
    ) AS found
    """,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Records of one kind. Times are in seconds by the database's clock."""

    status: Status
    operation: str
    run_name: str  # this and the next two of unknown outcomes and dead letters only
    on_lost_lease: str
    error: str  # of the last run
    failed: bool  # a stored server error
    slot: int  # of the period, 0 is the newest; -1 before it
    age_group: int
    count: int
    oldest: float
    oldest_overdue: float | None
    oldest_waiting: float | None
    overdue: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How many records are read at most: of the sample, of the newest, of each kind of open record."""

    sample: int
    newest: int
    open: int


@dataclass(frozen=True, slots=True)
class Read:
    """The groups by part, and how many records of the table each one of the sample represents."""

    parts: dict[str, list[Group]]
    scale: float
    at: datetime  # by the database's clock

    def count(self, part: str) -> int:
        return sum(group.count for group in self.parts[part])


def load_groups(seconds: float, slots: int, silent: float, limits: Limits, using: str) -> Read:
    """Return the parts `sample`, `newest` (in the last `seconds`), `lease`, `doubt` and `dead`.

    Work that was put back counts as waiting once it has been silent for `silent` seconds.
    """
    rows = GROUPS.rows(
        using,
        seconds=seconds,
        since=-seconds,
        width=seconds / slots,
        silent=silent,
        sample=limits.sample,
        last=limits.sample - 1,
        newest=limits.newest,
        most=limits.open,
    )
    parts: dict[str, list[Group]] = {"sample": [], "newest": [], "lease": [], "doubt": [], "dead": []}
    for part, *columns, _last, _at in rows:
        parts[part].append(_make_group(columns, seconds))
    last, at = rows[0][-2:] if rows else (None, datetime.now(UTC))
    return Read(parts, 1.0 if last is None else _estimate_scale(last, using), _to_moment(at))


def _make_group(columns: list[Any], seconds: float) -> Group:
    status, operation, run_name, lost, error, failed, slot, age_group, count, oldest, overdue, waiting, late = columns
    return Group(
        Status(status),
        operation,
        run_name,
        lost,
        error,
        bool(failed),
        max(int(slot), 0) if oldest < seconds else -1,
        int(age_group),
        int(count),
        float(oldest),
        None if overdue is None else float(overdue),
        None if waiting is None else float(waiting),
        int(late),
    )


def _to_moment(at: datetime | str) -> datetime:
    """Return a time as drivers give it; one without a zone is in UTC."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _estimate_scale(last: UUID | str, using: str) -> float:
    """Return the size of the table over that of the sample: ids are evenly distributed, and this is its last one."""
    return max(1 / place_in_id_order(last if isinstance(last, UUID) else UUID(last), using), 1.0)
