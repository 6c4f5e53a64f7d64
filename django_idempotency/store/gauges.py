"""What the gauges of monitoring show, read in one statement whose cost does not grow with the table."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django_idempotency.core.audit import Kind
from django_idempotency.core.states import Status
from django_idempotency.models import INSTALLATION
from django_idempotency.store.dialects import Statement, place_in_id_order

COUNTED_EXACTLY: Final = 2_000
COUNTED_AT_MOST: Final = 10_000  # of each kind of open record
# An id is a digest: where the last of a few thousand is in the order of all tells how many there are.
OPEN_NOW: Final = Statement(
    "",
    f"""
    SELECT 'open' AS part, status AS name, '' AS run_name, '' AS on_lost_lease,
           COUNT(*) AS number, MAX(age) AS oldest, SUM(overdue) AS overdue
    FROM (
        SELECT status, -({{left created_at}}) AS age, CASE WHEN {{left locked_until}} <= 0 THEN 1 ELSE 0 END AS overdue
        FROM idempotency_key WHERE locked_until IS NOT NULL ORDER BY locked_until LIMIT %(most)s
    ) AS leases GROUP BY status
    UNION ALL
    SELECT 'unknown', operation, run_name, on_lost_lease, COUNT(*), MAX(age), 0
    FROM (
        SELECT operation, run_name, on_lost_lease, -({{left created_at}}) AS age
        FROM idempotency_key WHERE reconcile_after IS NOT NULL ORDER BY reconcile_after LIMIT %(most)s
    ) AS unknowns GROUP BY operation, run_name, on_lost_lease
    UNION ALL
    SELECT 'open', status, '', '', COUNT(*), MAX(age), 0
    FROM (
        SELECT status, -({{left created_at}}) AS age FROM idempotency_key
        WHERE status = 'dead_letter'
          AND id IN (SELECT record_id FROM idempotency_event WHERE kind = '{Kind.DEAD_LETTER}')
        LIMIT %(most)s
    ) AS dead GROUP BY status
    UNION ALL
    SELECT 'waiting', '', '', '', COUNT(*), MAX(idle), 0
    FROM (
        SELECT last_error_code, -({{left last_run_at}}) AS idle
        FROM idempotency_key WHERE locked_until IS NOT NULL AND status = 'pending' ORDER BY locked_until LIMIT %(most)s
    ) AS waiting WHERE last_error_code = '' OR idle >= %(silent)s
    UNION ALL
    SELECT 'job', job, '', '', 1, -({{left succeeded_at}}), 0 FROM idempotency_maintenance_run
    WHERE job <> '{INSTALLATION}'
    UNION ALL
    SELECT 'counted', '', '', '', COUNT(*), 0, 0
    FROM (SELECT id FROM idempotency_key ORDER BY id LIMIT %(sample)s) AS sampled
    UNION ALL
    SELECT 'last', last, '', '', 0, 0, 0
    FROM (SELECT CAST(id AS CHAR(36)) AS last FROM idempotency_key ORDER BY id LIMIT 1 OFFSET %(before)s) AS sampled
    """,
)


@dataclass(frozen=True, slots=True)
class Unknowns:
    """The unknown outcomes of one operation."""

    operation: str
    run_name: str
    on_lost_lease: str
    number: int


@dataclass(slots=True)
class Readings:
    """What was read. Ages are in seconds by the database's clock."""

    open: Counter[Status] = field(default_factory=Counter)  # each at most COUNTED_AT_MOST
    oldest: dict[Status, float] = field(default_factory=dict)
    overdue: int = 0  # leases that expired and that the sweeper has not handled yet
    waiting: int = 0  # accepted work that no worker has begun
    unknowns: list[Unknowns] = field(default_factory=list)
    succeeded_ago: dict[str, float | None] = field(default_factory=dict)  # by maintenance job; None: never
    live: int = 0  # estimated above COUNTED_EXACTLY


def read_gauges(silent: float, using: str) -> Readings:
    """Read everything. Requeued work counts as waiting after `silent` seconds."""
    found = Readings()
    for part, name, run_name, on_lost_lease, number, oldest, overdue in OPEN_NOW.rows(
        using, most=COUNTED_AT_MOST, sample=COUNTED_EXACTLY, before=COUNTED_EXACTLY - 1, silent=silent
    ):
        match part:
            case "unknown":
                found.unknowns.append(Unknowns(name, run_name, on_lost_lease, number))
                _add(found, Status.UNKNOWN, number, oldest)
            case "open":
                _add(found, Status(name), number, oldest)
                found.overdue += int(overdue)
            case "waiting":
                found.waiting = number
            case "job":
                found.succeeded_ago[name] = None if oldest is None else float(oldest)
            case "counted":
                found.live = max(number, found.live)
            case _:  # "last": the id at the end of a full sample
                found.live = round(COUNTED_EXACTLY / place_in_id_order(UUID(name), using))
    return found


def _add(found: Readings, status: Status, number: int, oldest: float) -> None:
    found.open[status] += number
    found.oldest[status] = max(float(oldest), found.oldest.get(status, 0.0))
