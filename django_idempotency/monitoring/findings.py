"""What is wrong with a live system, as data. The health view, the doctor and the dashboard show the same findings.

`find` decides from one snapshot and asks nothing itself; `describe` says a finding in one sentence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy, override

from django_idempotency.conf import conf
from django_idempotency.monitoring.durations import OperationStats
from django_idempotency.monitoring.jobs import SCHEDULED
from django_idempotency.monitoring.units import format_duration, format_interval, format_number

LATE_SECONDS: Final = 600  # ten sweeps of the usual schedule
UNKNOWN_SECONDS: Final = 3600
CLOCK_SECONDS: Final = 2.0
_DAY: Final = 86_400


class Code(StrEnum):
    """A kind of problem. Scripts compare these codes: they do not change."""

    STORE_UNAVAILABLE = "store-unavailable"
    LEASE_OVERDUE = "lease-overdue"
    WORK_WAITING = "work-waiting"
    DEAD_LETTERS = "dead-letters"
    UNATTENDED = "unknown-unattended"
    JOB_FAILED = "job-failed"
    JOB_NEVER_RAN = "job-never-ran"
    JOB_LATE = "job-late"
    UNKNOWN_OLD = "unknown-old"
    RETENTION_SHORT = "retention-short"
    OPERATION_RETENTION_SHORT = "operation-retention-short"
    LEASE_SHORT = "lease-short"
    POOLER = "pooler-unsafe"
    CLOCKS_APART = "clocks-apart"
    PROMISE = "promise-broken"


# The health view returns 503 for these. The others can wait until morning.
URGENT: Final = frozenset({Code.LEASE_OVERDUE, Code.WORK_WAITING, Code.DEAD_LETTERS, Code.UNATTENDED, Code.JOB_FAILED})


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. Times are in seconds."""

    code: Code
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_urgent(self) -> bool:
        return self.code in URGENT


@dataclass(frozen=True, slots=True)
class JobRun:
    """The last run of a maintenance job."""

    job: str
    finished_ago: float | None  # seconds
    counts: str  # JSON
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the rules look at. Ages are in seconds by the database's clock; None if there is none."""

    oldest_overdue: float | None
    oldest_waiting: float | None
    unknown: int
    unattended: int = 0
    oldest_unattended: float | None = None
    oldest_unknown: float | None
    dead_letters: int
    oldest_dead_letter: float | None
    runs: Mapping[str, JobRun]
    operations: Mapping[str, OperationStats] = field(default_factory=dict)
    clocks_apart: float | None = None
    pooled: tuple[str, ...] = ()  # options in use that a pooler in transaction mode breaks


def find_problems(seen: Snapshot) -> list[Finding]:
    """Return what is wrong, the most urgent first; an empty list if nothing is."""
    found = [*_find_stuck(seen), *_find_failed_jobs(seen), *_find_missed_jobs(seen), *_find_unknown(seen)]
    return [*found, *_find_short_retention(), *_find_operations(seen), *_find_clocks(seen), *_find_pooler(seen)]


def _find_stuck(seen: Snapshot) -> Iterator[Finding]:
    if seen.dead_letters:
        yield Finding(Code.DEAD_LETTERS, {"count": seen.dead_letters, "age": seen.oldest_dead_letter or 0.0})
    if seen.unattended:
        yield Finding(Code.UNATTENDED, {"count": seen.unattended, "age": seen.oldest_unattended or 0.0})
    if seen.oldest_overdue is not None and seen.oldest_overdue > LATE_SECONDS:
        yield Finding(Code.LEASE_OVERDUE, {"age": seen.oldest_overdue})
    if seen.oldest_waiting is not None and seen.oldest_waiting > LATE_SECONDS:
        yield Finding(Code.WORK_WAITING, {"age": seen.oldest_waiting})


def _find_failed_jobs(seen: Snapshot) -> Iterator[Finding]:
    for name, run in seen.runs.items():
        if run.error:
            yield Finding(Code.JOB_FAILED, {"job": name, "error": run.error})


def _find_missed_jobs(seen: Snapshot) -> Iterator[Finding]:
    for job in SCHEDULED:
        run = seen.runs.get(job.name)
        if run is None or run.finished_ago is None:
            yield Finding(Code.JOB_NEVER_RAN, {"job": job.name})
        elif run.finished_ago > job.late:
            yield Finding(Code.JOB_LATE, {"job": job.name, "age": run.finished_ago})


def _find_unknown(seen: Snapshot) -> Iterator[Finding]:
    if seen.oldest_unknown is not None and seen.oldest_unknown > UNKNOWN_SECONDS:
        yield Finding(Code.UNKNOWN_OLD, {"count": seen.unknown, "age": seen.oldest_unknown})


def _find_short_retention() -> Iterator[Finding]:
    if conf.RETENTION is not None and conf.RETENTION.total_seconds() < _DAY:
        yield Finding(Code.RETENTION_SHORT, {"retention": conf.RETENTION.total_seconds()})


def _find_operations(seen: Snapshot) -> Iterator[Finding]:
    for name, operation in sorted(seen.operations.items()):
        if operation.retention is not None and operation.retention < _DAY:
            yield Finding(Code.OPERATION_RETENTION_SHORT, {"operation": name, "retention": operation.retention})
        p99 = operation.p99
        if p99 is not None and not operation.has_room:
            values = {"operation": name, "lease": operation.lease, "p99": p99, "needed": ceil(3 * p99)}
            yield Finding(Code.LEASE_SHORT, values)


def _find_clocks(seen: Snapshot) -> Iterator[Finding]:
    if seen.clocks_apart is not None and seen.clocks_apart > CLOCK_SECONDS:
        yield Finding(Code.CLOCKS_APART, {"difference": seen.clocks_apart})


def _find_pooler(seen: Snapshot) -> Iterator[Finding]:
    if seen.pooled:
        yield Finding(Code.POOLER, {"options": ", ".join(seen.pooled)})


SENTENCES: Final[Mapping[Code, str | Promise]] = {
    Code.STORE_UNAVAILABLE: _("%(error)s"),
    Code.DEAD_LETTERS: ngettext_lazy(
        "%(number)s outcome needs a person, because reconciliation gave up on it; it is %(age)s old.",
        "%(number)s outcomes need a person, because reconciliation gave up on them; the oldest is %(age)s old.",
        "count",
    ),
    Code.UNATTENDED: ngettext_lazy(
        "%(number)s unknown outcome needs a person, because its operation has no reconciler: nobody will ask about it; "
        "it is %(age)s old.",
        "%(number)s unknown outcomes need a person, because their operations have no reconciler: nobody will ask about "
        "them; the oldest is %(age)s old.",
        "count",
    ),
    Code.LEASE_OVERDUE: _(
        "A lease expired, or deferred work was due, %(age)s ago and was not handled: check that the sweeper and a "
        "worker are running."
    ),
    Code.WORK_WAITING: _(
        "Accepted work has waited for %(age)s and no worker has begun it: check that a worker is running and reads "
        "this queue."
    ),
    Code.JOB_FAILED: _("The last run of %(job)s failed: %(error)s"),
    Code.JOB_NEVER_RAN: _(
        "The maintenance job %(job)s has never run to its end: schedule it with Celery beat or cron."
    ),
    Code.JOB_LATE: _("The last run of %(job)s ended %(age)s ago: check that its schedule is still active."),
    Code.UNKNOWN_OLD: ngettext_lazy(
        "%(number)s outcome is unknown and %(age)s old: check that its operation has a reconciler and that the "
        "provider answers. An operation that waits to be resumed needs a worker with its code.",
        "The oldest of %(number)s unknown outcomes is %(age)s old: check that its operation has a reconciler and that "
        "the provider answers. An operation that waits to be resumed needs a worker with its code.",
        "count",
    ),
    Code.RETENTION_SHORT: _(
        "IDEMPOTENCY['RETENTION'] is %(retention)s: a client that retries later runs the request again, or is "
        "rejected. Clients expect at least 24 hours."
    ),
    Code.OPERATION_RETENTION_SHORT: _(
        "Operation %(operation)s keeps its responses for %(retention)s: a client that retries later runs the request "
        "again, or is rejected. Clients expect at least 24 hours."
    ),
    Code.LEASE_SHORT: _(
        "Operation %(operation)s has a lease of %(lease)s, but its p99 is %(p99)s: make the lease at least %(needed)s."
    ),
    Code.POOLER: _(
        "A connection pooler stands before PostgreSQL, and this process uses %(options)s: in transaction mode another "
        "client's statement can run instead of yours. Switch these off, or let the pooler keep whole sessions."
    ),
    Code.CLOCKS_APART: _(
        "The clocks of this machine and of the database differ by %(difference)s. Leases do not depend on it; "
        "message expiry, signatures and logs do: synchronize the clocks."
    ),
    Code.PROMISE: _("%(promise)s does not hold: %(reason)s"),
}
_FORMATS: Final = {
    "age": format_interval,
    **dict.fromkeys(("retention", "lease", "p99", "needed", "difference"), format_duration),
}


def describe(finding: Finding) -> str:
    """Return one sentence that says what is wrong and what to do, in the active language."""
    values = {**finding.values, "number": format_number(finding.values.get("count", 0))}
    values |= {name: write(values[name]) for name, write in _FORMATS.items() if name in values}
    if "operation" in values:
        values["operation"] = values["operation"] or "-"
    return str(SENTENCES[finding.code] % values)


def describe_plainly(finding: Finding) -> str:
    """Return the sentence in English, as monitors and scripts read it."""
    with override(None):
        return describe(finding)
