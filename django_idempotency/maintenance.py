"""The duties: sweep, reconcile, resume, reap. Plain functions that return counts; tasks and commands wrap them.

Two runs at once are harmless: every change is compared and set row by row, and the loser does nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic, sleep
from typing import Any, Final

from django.db import InterfaceError, OperationalError
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
from django_idempotency.models import DutyRun
from django_idempotency.monitoring.health import health
from django_idempotency.signals import announce, logger
from django_idempotency.store import counts as outcomes
from django_idempotency.store import duties, events, limits
from django_idempotency.store.database import alias
from django_idempotency.store.deletion import delete

__all__ = ["Bounds", "health", "reap", "reconcile", "resume", "sweep", "work"]

_WAITS: Final = 12  # for a lock, in one page: enough to find the one row of a thousand that somebody holds

ReportProgress = Callable[[Counter[str]], None]
Look = Callable[[int, str, int], list[duties.Due]]


@dataclass(frozen=True)
class Bounds:
    """How much one run of a duty may do."""

    using: str = field(default_factory=alias)
    batch_size: int = 1000
    max_runtime: float | None = None  # seconds
    pause: float = 0.0  # seconds between batches, so that requests get their turn
    dry_run: bool = False
    progress: ReportProgress = lambda counts: None
    stopped: Callable[[], bool] = lambda: False  # asked between rows: whoever runs the duty wants to end

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; it is {self.batch_size!r}.")


def sweep(bounds: Bounds | None = None) -> Counter[str]:
    """Leases that ran out become unknown; messages that nobody picked up are sent again."""
    bounds = bounds or Bounds()

    def lost(due: duties.Due) -> str:
        return "unknown" if lapse(due.ref(bounds.using)) else "overtaken"

    def waiting(due: duties.Due) -> str:
        if not duties.enqueued_again(due.ref(bounds.using), pick_up_seconds()):
            return "overtaken"
        return "enqueued" if send(due.id) else "failed"

    # Where no message is sent, what waits is left to `work`.
    return _each("sweep", [(duties.lost, lost), *([(duties.waiting, waiting)] if sender() else [])], bounds)


def reconcile(bounds: Bounds | None = None) -> Counter[str]:
    """Doubts that are due are asked about."""
    bounds = bounds or Bounds()

    def one(due: duties.Due) -> str:
        outcome: Outcome = reconcile_one(due.id, bounds.using)
        return outcome.value

    return _each("reconcile", [(duties.doubts, one)], bounds)


def resume(bounds: Bounds | None = None) -> Counter[str]:
    """Operations whose process is gone are gone on with; of deferred ones a worker is told."""
    bounds = bounds or Bounds()

    def one(due: duties.Due) -> str:
        outcome: Outcome = resume_one(due.id, bounds.using)
        return outcome.value

    return _each("resume", [(duties.resumable, one), *([(duties.unfinished, one)] if sender() else [])], bounds)


def work(bounds: Bounds | None = None) -> Counter[str]:
    """Deferred operations that are due are performed, here and now: a worker that needs no messages."""
    bounds = bounds or Bounds()

    def one(due: duties.Due) -> str:
        return perform(due.id, bounds.using).value

    return _each("work", [(duties.waiting, one), (duties.unfinished, one)], bounds)


def reap(bounds: Bounds | None = None) -> Counter[str]:
    """Answers past their retention are deleted, or kept for audit where the policy says so.

    What is open or in doubt has no expiry and is never seen here. Events and counts have retentions of their own.
    """
    bounds = bounds or Bounds()
    over = _time_limit(bounds)
    with _run_of("reap", bounds) as counts:
        for page in _pages(duties.past, bounds, counts, over, monotonic()):
            _reap_page(page, bounds, counts)
        if conf.EVENT_RETENTION is not None:
            _reap_old("events", events.past(conf.EVENT_RETENTION, bounds.using), bounds, counts, over)
        if conf.COUNT_RETENTION is not None:
            _reap_old("counts", outcomes.past(conf.COUNT_RETENTION, bounds.using), bounds, counts, over)
    if counts["deleted"]:
        announce(signals.pruned, count=counts["deleted"], using=bounds.using)
    return counts


def _reap_page(page: list[duties.Due], bounds: Bounds, counts: Counter[str]) -> None:
    deleted, held = _deleted(page, bounds.using, counts)
    counts["deleted"] += deleted
    if deleted == len(page):
        return
    reply = render(IETF, ABANDONED, 408, safe_new_key=True)

    def ended(due: duties.Due) -> str:
        if due.status is Status.PENDING:
            return "abandoned" if duties.abandon(due.ref(bounds.using), reply) else ""
        return "expired" if duties.expire(due.ref(bounds.using)) else ""

    for due in page:
        if due.status in (Status.PENDING, Status.COMPLETED, Status.FAILED) and due not in held:
            counts[_tried("reap", ended, due)] += 1
    del counts[""]


def _deleted(page: list[duties.Due], using: str, counts: Counter[str]) -> tuple[int, set[duties.Due]]:
    """How many went, and which ones somebody holds. What keeps one from going must not keep the others: by halves."""
    deleted, waits, held = 0, 0, set[duties.Due]()
    parts = [page]
    while parts:
        part = parts.pop()
        try:
            deleted += delete([due.id for due in part], using)
        except Exception as error:  # noqa: BLE001 - a trigger's, a receiver's: whatever it is, it is some row's
            contended = _contended(error)
            waits += contended
            if contended and (len(part) == 1 or waits >= _WAITS):
                held.update(part)
            elif len(part) == 1:
                logger.exception("Idempotency record %s cannot be deleted; the next run tries again.", part[0].id)
                counts["failed"] += 1
            else:
                middle = len(part) // 2
                parts += part[middle:], part[:middle]
    if held:
        counts["contended"] += len(held)
    return deleted, held


def _contended(error: Exception) -> bool:
    """Whether another transaction held the row. A database that is gone ends the run."""
    lost = isinstance(error, OperationalError | InterfaceError)
    if lost and not limits.may_repeat(error):
        raise error
    return lost


def _reap_old(name: str, old: QuerySet[Any], bounds: Bounds, counts: Counter[str], over: Callable[[], bool]) -> None:
    """Batch by batch; at least one in every run, so that a run whose time is short gets on as well."""
    while ids := list(old.values_list("pk", flat=True)[: bounds.batch_size]):
        if bounds.dry_run:
            counts[name] = len(ids)
            return
        counts[name] += old.model._default_manager.using(bounds.using).filter(pk__in=ids).delete()[0]
        bounds.progress(counts)
        if len(ids) < bounds.batch_size or over():
            return
        sleep(bounds.pause)


def _each(duty: str, turns: Sequence[tuple[Look, Callable[[duties.Due], str]]], bounds: Bounds) -> Counter[str]:
    over, began = _time_limit(bounds), monotonic()
    with _run_of(duty, bounds) as counts:
        for look, one in turns:
            for page in _pages(look, bounds, counts, over, began):
                for due in page:
                    if over():
                        break
                    counts[_tried(duty, one, due)] += 1
    return counts


def _tried(duty: str, one: Callable[[duties.Due], str], due: duties.Due) -> str:
    """One row that fails must not keep the others from their turn; a database that is gone ends the run."""
    try:
        return one(due)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this row's
        if _contended(error):
            return "contended"
        logger.exception("%s failed on idempotency record %s; its next run tries again.", duty, due.id)
        return "failed"


def _time_limit(bounds: Bounds) -> Callable[[], bool]:
    """Whether this run has had its time; asked between rows, because one poll may take long."""
    end = inf if bounds.max_runtime is None else monotonic() + bounds.max_runtime
    return lambda: bounds.stopped() or monotonic() >= end


def _pages(
    look: Look, bounds: Bounds, counts: Counter[str], over: Callable[[], bool], began: float
) -> Iterator[list[duties.Due]]:
    """Pages of what was due when the run began, until nothing new is found or the time is over.

    What failed stays due and comes first in every page: the pages grow by it, so that the others have their turn.
    """
    seen: set[object] = set()
    stuck = 0
    while page := look(stuck + bounds.batch_size, bounds.using, int(began - monotonic())):
        if bounds.dry_run:
            counts["due"] += len(page)
            return
        fresh = [due for due in page if due.id not in seen]
        if fresh:
            yield fresh
        bounds.progress(counts)
        if len(page) < stuck + bounds.batch_size or over():
            return
        seen = {due.id for due in page}
        stuck = max(stuck, len(page) - len(fresh))
        sleep(bounds.pause)


@contextmanager
def _run_of(duty: str, bounds: Bounds) -> Iterator[Counter[str]]:
    """Note when the duty began, when it ended, what it did, and what stopped it."""
    counts: Counter[str] = Counter()
    if bounds.dry_run:
        yield counts
        return
    runs = DutyRun.objects.using(bounds.using)
    runs.get_or_create(duty=duty)  # two first runs at once would deadlock in update_or_create on MariaDB
    runs.filter(duty=duty).update(started_at=StatementNow())
    error = ""
    try:
        yield counts
    except BaseException as problem:
        error = f"{type(problem).__name__}: {problem}"
        raise
    finally:
        said = {"finished_at": StatementNow(), "counts": json.dumps(counts), "error": error}
        runs.filter(duty=duty).update(**said)
