"""The maintenance jobs: sweep, reconcile, resume, work and reap. Tasks and commands call these functions.

Each returns its counts. Two runs at the same time do no harm: every change has a condition, and only one run makes it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import Error
from django.db.models import QuerySet

from django_idempotency import signals
from django_idempotency.conf import conf
from django_idempotency.core.effects import Effect
from django_idempotency.core.problems import ABANDONED, members_of, render
from django_idempotency.core.profiles import IETF
from django_idempotency.core.states import Status
from django_idempotency.flow.claim import lapse
from django_idempotency.flow.job_run import ActiveRun, Bounds, Look, record_run
from django_idempotency.flow.messages import pick_up_seconds, send, sender
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.flow.schemas import in_every_schema
from django_idempotency.flow.settle import Outcome, end_waiting
from django_idempotency.flow.worker import perform_one, resume_one
from django_idempotency.monitoring.health import health
from django_idempotency.signals import announce, logger
from django_idempotency.store import counts as outcomes
from django_idempotency.store import events, jobs
from django_idempotency.store.deletion import delete_page, is_contended

__all__ = ["Bounds", "health", "reap", "reconcile", "resume", "sweep", "work"]

_LAPSED: Final = "%d leases of the operation %r expired: their workers crashed or took too long."


@dataclass(frozen=True, slots=True)
class Turn:
    """Which rows a job looks at, and what it does with each one."""

    look: Look
    handle: Callable[[jobs.Due], str]  # returns what is counted
    after_page: Callable[[], None] = lambda: None


@in_every_schema
def sweep(bounds: Bounds | None = None) -> Counter[str]:
    """Mark attempts whose lease expired as unknown, and send messages again that no worker picked up."""
    bounds = bounds or Bounds()

    lapsed: Counter[str] = Counter()

    def mark(due: jobs.Due) -> str:
        if not lapse(due.ref(bounds.using)):
            return "overtaken"
        lapsed[due.operation] += 1
        return "unknown"

    def tell() -> None:
        for operation, count in sorted(lapsed.items()):
            logger.warning(_LAPSED, count, operation)
        lapsed.clear()

    def send_again(due: jobs.Due) -> str:
        if not jobs.enqueued_again(due.ref(bounds.using), pick_up_seconds()):
            return "overtaken"
        return "enqueued" if send(due.id) else "failed"

    turns = [Turn(jobs.find_lost, mark, tell)]
    if sender():  # else `work` finds the rows that wait
        turns.append(Turn(jobs.find_waiting, send_again))
    return _take_turns("sweep", turns, bounds)


@in_every_schema
def reconcile(bounds: Bounds | None = None) -> Counter[str]:
    """Call the reconciler for each unknown outcome that is due."""
    bounds = bounds or Bounds()

    def ask(due: jobs.Due) -> str:
        outcome: Outcome = reconcile_one(due.id, bounds.using)
        return outcome.value

    return _take_turns("reconcile", [Turn(jobs.find_doubts, ask)], bounds)


@in_every_schema
def resume(bounds: Bounds | None = None) -> Counter[str]:
    """Continue operations whose process is gone; for deferred ones, send a worker a message."""
    bounds = bounds or Bounds()

    def go_on(due: jobs.Due) -> str:
        outcome: Outcome = resume_one(due.id, bounds.using)
        return outcome.value

    turns = [Turn(jobs.find_resumable, go_on)]
    if sender():
        turns.append(Turn(jobs.find_unfinished, go_on))
    return _take_turns("resume", turns, bounds)


@in_every_schema
def work(bounds: Bounds | None = None) -> Counter[str]:
    """Perform deferred operations that are due, here and now: a worker that needs no messages."""
    bounds = bounds or Bounds()

    def do(due: jobs.Due) -> str:
        return perform_one(due.id, bounds.using).value

    return _take_turns("work", [Turn(jobs.find_waiting, do), Turn(jobs.find_unfinished, do)], bounds)


@in_every_schema
def reap(bounds: Bounds | None = None) -> Counter[str]:
    """Delete stored responses whose retention has ended, or keep them for audit if the policy says so.

    Records without a final response have no expiry and are not read. Events and counts have their own retention.
    """
    bounds = bounds or Bounds()
    with record_run("reap", bounds) as run:
        for page in run.read_pages(jobs.find_past):
            _reap_page(page, run)
        if conf.EVENT_RETENTION is not None:
            old_events = events.events_before(conf.EVENT_RETENTION, bounds.using).values_list("pk", "record_id")
            _reap_old("events", old_events, run, lambda page: events.list_settled(page, bounds.using))
        if conf.COUNT_RETENTION is not None:
            old_counts = outcomes.counts_before(conf.COUNT_RETENTION, bounds.using).values_list("pk", flat=True)
            _reap_old("counts", old_counts, run)
        _merge_counts(run)
    if run.counts["deleted"]:
        announce(signals.pruned, count=run.counts["deleted"], using=bounds.using)
    return run.counts


def _reap_page(page: list[jobs.Due], run: ActiveRun) -> None:
    using, before = run.bounds.using, run.counts["deleted"]
    held = delete_page([due.ref(using) for due in page], using, run.counts)
    if run.counts["deleted"] - before == len(page):
        return
    reply = render(IETF, ABANDONED, 408, **members_of(Effect.NONE))

    def end(due: jobs.Due) -> str:
        if due.status is Status.PENDING:
            return end_waiting(due.ref(using), reply)
        return "expired" if jobs.retire(due.ref(using)) else ""

    for due in page:
        if due.status in (Status.PENDING, *Status.TERMINAL) and due.id not in held:
            run.handle(due, end)
    del run.counts[""]


def _reap_old(name: str, old: QuerySet[Any], run: ActiveRun, choose: Callable[[list[Any]], list[Any]] = list) -> None:
    """Delete rows in batches; at least one batch in every run, so that short runs make progress too.

    `choose` returns the primary keys of those rows of a batch that may go.
    """
    bounds, kept = run.bounds, 0
    while page := list(old[kept : kept + bounds.batch_size]):
        if ids := choose(page):
            if bounds.dry_run:
                run.counts[name] = len(ids)
                return
            try:
                run.counts[name] += old.model._default_manager.using(bounds.using).filter(pk__in=ids).delete()[0]
            except Error as error:
                if not is_contended(error):
                    raise
                run.counts["contended"] += len(ids)  # the next run deletes what is left of them
                return
            bounds.progress(run.counts)
        if len(page) < bounds.batch_size or (ids and run.is_over()):
            return
        kept += len(page) - len(ids)
        run.pause()


def _merge_counts(run: ActiveRun) -> None:
    """Keep the outcomes of hours instead of minutes once they are a day old."""
    try:
        while not run.bounds.dry_run and outcomes.merge_oldest_hour(run.bounds.using) and not run.is_over():
            run.pause()
    except Error as error:
        if not is_contended(error):
            raise
        run.counts["contended"] += 1


def _take_turns(job: str, turns: Sequence[Turn], bounds: Bounds) -> Counter[str]:
    with record_run(job, bounds) as run:
        for turn in turns:
            for page in run.read_pages(turn.look):
                for due in page:
                    if run.is_over():
                        break
                    run.handle(due, turn.handle)
                turn.after_page()
    return run.counts
