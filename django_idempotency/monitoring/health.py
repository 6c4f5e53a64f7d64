"""The state of the records: a few cheap queries, and what a monitor or a doctor concludes from them."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Count, Max, Min, QuerySet
from django.utils import timezone

from django_idempotency.conf import conf
from django_idempotency.core.audit import Kind
from django_idempotency.fields import StatementNow
from django_idempotency.flow.unattended import match_resumable, match_unattended
from django_idempotency.models import INSTALLATION, IdempotencyKey, MaintenanceRun
from django_idempotency.monitoring.durations import load_operations
from django_idempotency.monitoring.findings import Finding, describe_plainly
from django_idempotency.monitoring.fingerprints import find_missing_secrets
from django_idempotency.monitoring.rules import HEARTBEATS_SECONDS, LATE_SECONDS, JobRun, Snapshot, find_problems
from django_idempotency.store.events import count_since
from django_idempotency.store.pooler import find_unsafe_options
from django_idempotency.store.records import alias
from django_idempotency.store.server import ask_server

LONGEST_WAIT: Final = timedelta(days=365)  # what a database can subtract

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Health:
    """What a monitor asks for. Ages are in seconds."""

    overdue: int  # leases that expired and that the sweeper has not handled yet
    oldest_overdue: float | None
    oldest_waiting: float | None  # since work was accepted, or put back, that no worker has begun
    unknown: int
    resumable: int  # of those, operations that the resumer continues
    unattended: int  # and those without a registered reconciler
    oldest_unknown: float | None  # since the key was first claimed
    oldest_unattended: float | None
    dead_letters: int
    oldest_dead_letter: float | None  # since the key was first claimed
    jobs: dict[str, JobRun]

    @property
    def findings(self) -> list[Finding]:
        """The problems that cannot wait; empty if there are none."""
        return [finding for finding in find_problems(self.snapshot) if finding.is_urgent]

    @property
    def complaints(self) -> list[str]:
        """The findings as English sentences."""
        return [describe_plainly(finding) for finding in self.findings]

    @property
    def snapshot(self) -> Snapshot:
        """What the rules of `findings` look at."""
        return Snapshot(
            oldest_overdue=self.oldest_overdue,
            oldest_waiting=self.oldest_waiting,
            unknown=self.unknown,
            unattended=self.unattended,
            oldest_unattended=self.oldest_unattended,
            oldest_unknown=self.oldest_unknown,
            dead_letters=self.dead_letters,
            oldest_dead_letter=self.oldest_dead_letter,
            runs=self.jobs,
        )

    def without_details(self) -> "Health":
        """Return the same with the class of each error alone: a message may name hosts, tables and values."""
        jobs = {name: replace(run, error=run.error.partition(":")[0]) for name, run in self.jobs.items()}
        return replace(self, jobs=jobs)

    def as_json(self) -> dict[str, Any]:
        found = self.findings
        codes, complaints = [finding.code.value for finding in found], [describe_plainly(each) for each in found]
        return {"healthy": not found, "codes": codes, "complaints": complaints, **asdict(self)}


def health(using: str | None = None) -> Health:
    """Read the state of the records. Every query here is answered from a small index or a small table."""
    using = using or alias()
    return _load_health(using, load_job_runs(using)[0])


def examine(using: str, clock: Clock = timezone.now) -> list[Finding]:
    """Return everything that is wrong. Reads the newest keys of each operation as well."""
    runs, apart = load_job_runs(using, clock)
    seen = _load_health(using, runs).snapshot
    return find_problems(
        replace(
            seen,
            operations=load_operations(using),
            heartbeats=count_since(timedelta(seconds=HEARTBEATS_SECONDS), Kind.HEARTBEAT_FAILED, using),
            missing_secrets=find_missing_secrets(using),
            clocks_apart=apart,
            pooled=find_unsafe_options(using),
            server=ask_server(using),
        )
    )


def _load_health(using: str, runs: dict[str, JobRun]) -> Health:
    keys = IdempotencyKey.objects.using(using)
    unattended = match_unattended()
    overdue, oldest_overdue = _measure(keys.overdue(), "locked_until")
    _, oldest_waiting = _measure(keys.waiting(get_longest_silence()), "last_run_at")
    doubts = keys.filter(reconcile_after__isnull=False).aggregate(
        count=Count("pk"),
        oldest=Min("created_at"),
        resumable=Count("pk", filter=match_resumable()),
        unattended=Count("pk", filter=unattended),
        oldest_unattended=Min("created_at", filter=unattended),
        now=Max(StatementNow()),
    )
    dead, oldest_dead_letter = _measure(keys.dead_letters(), "created_at")
    return Health(
        overdue=overdue,
        oldest_overdue=oldest_overdue,
        oldest_waiting=oldest_waiting,
        unknown=doubts["count"],
        resumable=doubts["resumable"],
        unattended=doubts["unattended"],
        oldest_unknown=_compute_age(doubts["oldest"], doubts["now"]),
        oldest_unattended=_compute_age(doubts["oldest_unattended"], doubts["now"]),
        dead_letters=dead,
        oldest_dead_letter=oldest_dead_letter,
        jobs=runs,
    )


def get_longest_silence() -> timedelta:
    """Return how long work that was put back may wait before a worker begins it again."""
    return timedelta(seconds=LATE_SECONDS) + min(conf.RECONCILE_BACKOFF_MAX, LONGEST_WAIT)


def _measure(rows: QuerySet[IdempotencyKey], column: str) -> tuple[int, float | None]:
    found = rows.aggregate(count=Count("pk"), oldest=Min(column), now=Max(StatementNow()))
    return found["count"], _compute_age(found["oldest"], found["now"])


def _compute_age(then: datetime | None, now: datetime | None) -> float | None:
    return None if then is None or now is None else (now - then).total_seconds()


def load_job_runs(using: str, clock: Clock = timezone.now) -> tuple[dict[str, JobRun], float | None]:
    """Return the last run of each maintenance job, and by how many seconds this machine's clock is wrong.

    The difference is None where no job has run: a statement needs a row to say the time in.
    """
    before = clock()
    rows = list(MaintenanceRun.objects.using(using).annotate(now=StatementNow()).order_by("job"))
    after = clock()
    runs = {
        row.job: JobRun(
            row.job,
            (row.now - row.finished_at).total_seconds() if row.finished_at else None,
            json.loads(row.counts or "{}"),
            row.error,
        )
        for row in rows
        if row.job != INSTALLATION
    }
    if not rows or timezone.is_naive(rows[0].now):
        return runs, None
    return runs, max(before - rows[0].now, rows[0].now - after).total_seconds()
