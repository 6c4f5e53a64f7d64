"""The records behind the dashboard: the open ones, up to a limit, and a fair sample of all, in one bounded read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django_idempotency.core.audit import Kind
from django_idempotency.core.states import Status
from django_idempotency.store.dialects import Statement

_ROW: Final = "id, status, -({left created_at}) AS age"
_NO_NAMES: Final = "'' AS operation, '' AS run_name, '' AS on_lost_lease"
_NO_LEASE: Final = f"0.0 AS remaining, 0.0 AS idle, last_error_code, {_NO_NAMES}"
# An id is a digest, so the first ids in order are a fair sample; and always the same one, which stays in memory.
RECORDS = Statement(
    "",
    f"""
    SELECT * FROM (
        SELECT 'sample' AS part, {_ROW}, {_NO_LEASE} FROM idempotency_key ORDER BY id LIMIT %(sample)s
    ) AS sampled
    UNION ALL SELECT * FROM (
        SELECT 'lease' AS part, {_ROW}, {{left locked_until}} AS remaining, -({{left last_run_at}}) AS idle,
               last_error_code, {_NO_NAMES}
        FROM idempotency_key WHERE locked_until IS NOT NULL ORDER BY locked_until LIMIT %(most)s
    ) AS leases
    UNION ALL SELECT * FROM (
        SELECT 'doubt' AS part, {_ROW}, 0.0 AS remaining, 0.0 AS idle, last_error_code, operation, run_name,
               on_lost_lease
        FROM idempotency_key
        WHERE reconcile_after IS NOT NULL ORDER BY reconcile_after LIMIT %(most)s
    ) AS doubts
    UNION ALL SELECT * FROM (
        SELECT 'dead' AS part, {_ROW}, {_NO_LEASE} FROM idempotency_key
        WHERE status = 'dead_letter'
          AND id IN (SELECT record_id FROM idempotency_event WHERE kind = '{Kind.DEAD_LETTER}')
        LIMIT %(most)s
    ) AS dead
    """,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One record as the dashboard sees it. Times are in seconds by the database's clock."""

    id: UUID
    status: Status
    age: float
    remaining: float  # of its lease
    idle: float | None  # since it was accepted, or last run
    error: str  # of its last run
    operation: str  # this and the next two of an unknown outcome only
    run_name: str
    on_lost_lease: str


def load_records(sample: int, most: int, using: str) -> dict[str, list[Row]]:
    """Return the parts `sample`, `lease`, `doubt` and `dead`."""
    found: dict[str, list[Row]] = {"sample": [], "lease": [], "doubt": [], "dead": []}
    for part, row in _rows(sample, most, using):
        found[part].append(row)
    return found


def _rows(sample: int, most: int, using: str) -> Iterator[tuple[str, Row]]:
    for part, record, status, age, remaining, idle, *texts in RECORDS.rows(using, sample=sample, most=most):
        identifier = record if isinstance(record, UUID) else UUID(record)
        since = None if idle is None else float(idle)
        yield part, Row(identifier, Status(status), float(age), float(remaining), since, *texts)
