"""One run of a maintenance job: its bounds, its clock, its counts, and the row that says when it ran."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic, sleep
from typing import Any
from uuid import UUID

from django.db import Error

from django_idempotency.fields import StatementNow
from django_idempotency.flow.tracing import trace_job
from django_idempotency.models import MaintenanceRun
from django_idempotency.signals import logger
from django_idempotency.store import jobs, limits
from django_idempotency.store.deletion import is_contended
from django_idempotency.store.records import alias

ReportProgress = Callable[[Counter[str]], None]
Look = Callable[[int, str, int], list[jobs.Due]]  # limit, database, seconds since the run began


@dataclass(frozen=True)
class Bounds:
    """How much one run of a maintenance job may do."""

    using: str = field(default_factory=alias)
    batch_size: int = 1000
    max_runtime: float | None = None  # seconds
    share: float = 1.0  # of its time that the run works; it pauses for the rest, so that requests get their turn
    dry_run: bool = False
    progress: ReportProgress = lambda counts: None
    stopped: Callable[[], bool] = lambda: False  # asked between rows; True ends the run

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; it is {self.batch_size!r}.")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be more than 0 and at most 1; it is {self.share!r}.")


class ActiveRun:
    """One run of a job: its bounds, its clock and its counts."""

    def __init__(self, job: str, bounds: Bounds) -> None:
        self.job, self.bounds = job, bounds
        self.counts: Counter[str] = Counter()
        self._began = monotonic()
        self._resumed = self._began  # the end of the last pause
        self._end = inf if bounds.max_runtime is None else self._began + bounds.max_runtime

    def is_over(self) -> bool:
        """True if the run has used up its time; asked between rows, because one poll may take long."""
        return self.bounds.stopped() or monotonic() >= self._end

    def read_pages(self, look: Look) -> Iterator[list[jobs.Due]]:
        """Yield rows that were due when the run began, each once, until there are no more or the run is over.

        Rows that fail stay due and sort first. Each page grows by their number so they cannot crowd out the rest.
        """
        bounds, seen, still_due = self.bounds, set[UUID](), 0
        while page := look(bounds.batch_size + still_due, bounds.using, self._count_seconds()):
            if bounds.dry_run:
                self.counts["due"] += len(page)
                return
            fresh = [due for due in page if due.id not in seen]
            if fresh:
                yield fresh
            bounds.progress(self.counts)
            if len(page) < bounds.batch_size + still_due or self.is_over():
                return
            seen = {due.id for due in page}
            still_due = max(still_due, len(page) - len(fresh))
            self.pause()

    def pause(self) -> None:
        """Give requests their turn: the longer a batch took, the longer, but not beyond the end of the run.

        A batch takes longer where the database is busy, so the pauses follow its load.
        """
        now = monotonic()
        wanted = (now - self._resumed) * (1 / self.bounds.share - 1)
        sleep(max(min(wanted, self._end - now), 0))
        self._resumed = monotonic()

    def handle(self, due: jobs.Due, function: Callable[[jobs.Due], str]) -> None:
        """Do one row. An error is this row's alone, unless the database is gone: that ends the run."""
        try:
            self.counts[function(due)] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the other rows must have their turn
            if is_contended(error):
                self.counts["contended"] += 1
                return
            logger.exception("%s failed on idempotency record %s; its next run tries again.", self.job, due.id)
            self.counts["failed"] += 1
        finally:
            self.bounds.progress(self.counts)

    def _count_seconds(self) -> int:
        return int(monotonic() - self._began)


@contextmanager
def record_run(job: str, bounds: Bounds) -> Iterator[ActiveRun]:
    """Record when the job began and ended, what it did, and what stopped it."""
    run = ActiveRun(job, bounds)
    if bounds.dry_run:
        yield run
        return
    _note(job, bounds.using, started_at=StatementNow())
    error = ""
    try:
        with trace_job(job) as set_counts:
            yield run
            set_counts(run.counts)
    except BaseException as problem:
        error = f"{type(problem).__name__}: {problem}"
        raise
    finally:
        succeeded = {} if error else {"succeeded_at": StatementNow()}
        _note(job, bounds.using, finished_at=StatementNow(), counts=json.dumps(run.counts), error=error, **succeeded)


def _note(job: str, using: str, **values: Any) -> None:
    """Write the job's own row. Where another node or run holds it, write it again, or leave it: the run goes on."""
    runs = MaintenanceRun.objects.using(using)
    for remaining in reversed(range(limits.TRIES)):
        try:
            if not runs.filter(job=job).update(**values):
                runs.get_or_create(job=job)  # two first runs at once would deadlock in update_or_create on MariaDB
                runs.filter(job=job).update(**values)
            return
        except Error as error:
            if not limits.may_repeat(error):
                raise
            if not remaining:
                logger.warning("The run of %s could not be recorded, because its row is contended: %s", job, error)
