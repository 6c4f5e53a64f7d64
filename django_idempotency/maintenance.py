"""The maintenance jobs: sweep, reconcile, resume, work and reap. Tasks and commands call these functions.

Each returns its counts. Two runs at once are harmless: every change is guarded, and the run that loses does nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic, sleep
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from django_idempotency import signals
from django_idempotency.conf import conf
from django_idempotency.core.problems import ABANDONED, render
from django_idempotency.core.profiles import IETF
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.flow.claim import lapse
from django_idempotency.flow.messages import pick_up_seconds, send, sender
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.flow.settle import Outcome
from django_idempotency.flow.worker import perform, resume_one
from django_idempotency.models import MaintenanceRun
from django_idempotency.monitoring.health import health
from django_idempotency.signals import announce, logger
from django_idempotency.store import counts as outcomes
from django_idempotency.store import events, jobs
from django_idempotency.store.database import alias
from django_idempotency.store.deletion import delete_page, is_contended
from django_idempotency.store.schemas import in_every_schema

__all__ = ["Bounds", "health", "reap", "reconcile", "resume", "sweep", "work"]

ReportProgress = Callable[[Counter[str]], None]
Look = Callable[[int, str, int], list[jobs.Due]]  # limit, database, seconds since the run began
Turn = tuple[Look, Callable[[jobs.Due], str]]  # which rows, and what is done with one; returns what is counted


@dataclass(frozen=True)
class Bounds:
    """How much one run of a maintenance job may do."""

    using: str = field(default_factory=alias)
    batch_size: int = 1000
    max_runtime: float | None = None  # seconds
    pause: float = 0.0  # seconds between batches, so that requests get their turn
    dry_run: bool = False
    progress: ReportProgress = lambda counts: None
    stopped: Callable[[], bool] = lambda: False  # asked between rows; True ends the run

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; it is {self.batch_size!r}.")


class _Run:
    """One run of a job: its bounds, its clock and its counts."""

    def __init__(self, job: str, bounds: Bounds) -> None:
        self.job, self.bounds = job, bounds
        self.counts: Counter[str] = Counter()
        self._began = monotonic()
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
            sleep(bounds.pause)

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

    def _count_seconds(self) -> int:
        return int(monotonic() - self._began)


@in_every_schema
def sweep(bounds: Bounds | None = None) -> Counter[str]:
    """Mark attempts whose lease expired as unknown, and send messages again that no worker picked up."""
    bounds = bounds or Bounds()

    def mark(due: jobs.Due) -> str:
        return "unknown" if lapse(due.ref(bounds.using)) else "overtaken"

    def send_again(due: jobs.Due) -> str:
        if not jobs.enqueued_again(due.ref(bounds.using), pick_up_seconds()):
            return "overtaken"
        return "enqueued" if send(due.id) else "failed"

    turns: list[Turn] = [(jobs.find_lost, mark)]
    if sender():  # else `work` finds the rows that wait
        turns.append((jobs.find_waiting, send_again))
    return _take_turns("sweep", turns, bounds)


@in_every_schema
def reconcile(bounds: Bounds | None = None) -> Counter[str]:
    """Ask about every unknown outcome that is due."""
    bounds = bounds or Bounds()

    def ask(due: jobs.Due) -> str:
        outcome: Outcome = reconcile_one(due.id, bounds.using)
        return outcome.value

    return _take_turns("reconcile", [(jobs.find_doubts, ask)], bounds)


@in_every_schema
def resume(bounds: Bounds | None = None) -> Counter[str]:
    """Continue operations whose process is gone; for deferred ones, send a worker a message."""
    bounds = bounds or Bounds()

    def go_on(due: jobs.Due) -> str:
        outcome: Outcome = resume_one(due.id, bounds.using)
        return outcome.value

    turns: list[Turn] = [(jobs.find_resumable, go_on)]
    if sender():
        turns.append((jobs.find_unfinished, go_on))
    return _take_turns("resume", turns, bounds)


@in_every_schema
def work(bounds: Bounds | None = None) -> Counter[str]:
    """Perform deferred operations that are due, here and now: a worker that needs no messages."""
    bounds = bounds or Bounds()

    def do(due: jobs.Due) -> str:
        return perform(due.id, bounds.using).value

    return _take_turns("work", [(jobs.find_waiting, do), (jobs.find_unfinished, do)], bounds)


@in_every_schema
def reap(bounds: Bounds | None = None) -> Counter[str]:
    """Delete stored responses whose retention is over, or keep them for audit where the policy says so.

    Open and unknown records have no expiry and are never read here. Events and counts have their own retention.
    """
    bounds = bounds or Bounds()
    with _record_run("reap", bounds) as run:
        for page in run.read_pages(jobs.find_past):
            _reap_page(page, run)
        if conf.EVENT_RETENTION is not None:
            _reap_old("events", events.events_before(conf.EVENT_RETENTION, bounds.using), run)
        if conf.COUNT_RETENTION is not None:
            _reap_old("counts", outcomes.counts_before(conf.COUNT_RETENTION, bounds.using), run)
    if run.counts["deleted"]:
        announce(signals.pruned, count=run.counts["deleted"], using=bounds.using)
    return run.counts


def _reap_page(page: list[jobs.Due], run: _Run) -> None:
    using, before = run.bounds.using, run.counts["deleted"]
    held = delete_page([due.id for due in page], using, run.counts)
    if run.counts["deleted"] - before == len(page):
        return
    reply = render(IETF, ABANDONED, 408, safe_new_key=True)

    def end(due: jobs.Due) -> str:
        if due.status is Status.PENDING:
            return "abandoned" if jobs.abandon(due.ref(using), reply) else ""
        return "expired" if jobs.retire(due.ref(using)) else ""

    for due in page:
        if due.status in (Status.PENDING, *Status.TERMINAL) and due.id not in held:
            run.handle(due, end)
    del run.counts[""]


def _reap_old(name: str, old: QuerySet[Any], run: _Run) -> None:
    """Delete rows in batches; at least one batch in every run, so that short runs make progress too."""
    bounds = run.bounds
    while ids := list(old.values_list("pk", flat=True)[: bounds.batch_size]):
        if bounds.dry_run:
            run.counts[name] = len(ids)
            return
        run.counts[name] += old.model._default_manager.using(bounds.using).filter(pk__in=ids).delete()[0]
        bounds.progress(run.counts)
        if len(ids) < bounds.batch_size or run.is_over():
            return
        sleep(bounds.pause)


def _take_turns(job: str, turns: Sequence[Turn], bounds: Bounds) -> Counter[str]:
    with _record_run(job, bounds) as run:
        for look, function in turns:
            for page in run.read_pages(look):
                for due in page:
                    if run.is_over():
                        break
                    run.handle(due, function)
    return run.counts


@contextmanager
def _record_run(job: str, bounds: Bounds) -> Iterator[_Run]:
    """Record when the job began and ended, what it did, and what stopped it."""
    run = _Run(job, bounds)
    if bounds.dry_run:
        yield run
        return
    runs = MaintenanceRun.objects.using(bounds.using)
    runs.get_or_create(job=job)  # two first runs at once would deadlock in update_or_create on MariaDB
    runs.filter(job=job).update(started_at=StatementNow())
    error = ""
    try:
        yield run
    except BaseException as problem:
        error = f"{type(problem).__name__}: {problem}"
        raise
    finally:
        result = {"finished_at": StatementNow(), "counts": json.dumps(run.counts), "error": error}
        runs.filter(job=job).update(**result)
