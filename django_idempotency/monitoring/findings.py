"""What is wrong with a live system, each in one sentence that says what to do."""

from collections.abc import Callable, Iterator
from datetime import datetime
from math import ceil
from typing import Final

from django.db.models import Max
from django.utils import timezone

from django_idempotency.conf import conf
from django_idempotency.fields import StatementNow
from django_idempotency.models import DutyRun
from django_idempotency.monitoring.durations import operations
from django_idempotency.monitoring.health import Health, health

DAY: Final = 86_400
LATE_SECONDS: Final = {"sweep": 600, "reconcile": 600, "resume": 600, "reap": 36_000}  # ten runs of the usual schedule
DOUBT_SECONDS: Final = 3600
CLOCK_SECONDS: Final = 2.0

Clock = Callable[[], datetime]


def findings(using: str, clock: Clock = timezone.now) -> list[str]:
    """Empty when all is well. Reads small tables, small indexes and the newest keys."""
    now = health(using)
    return [*now.complaints, *_duties(now), *_doubt(now), *_retention(), *_operations(using), *_clock(using, clock)]


def _duties(now: Health) -> Iterator[str]:
    for duty, late in LATE_SECONDS.items():
        ago = now.duties[duty]["finished_ago"] if duty in now.duties else None
        if ago is None:
            yield f"The {duty} has never run to its end: schedule it with Celery beat or cron."
        elif ago > late:
            yield f"The last {duty} ended {ago:.0f} s ago: is what schedules it still running?"


def _doubt(now: Health) -> Iterator[str]:
    if now.oldest_unknown is not None and now.oldest_unknown > DOUBT_SECONDS:
        yield (
            f"The oldest of {now.unknown} unknown outcomes is {now.oldest_unknown:.0f} s old: "
            "does its operation have a reconciler, and does the provider answer it? An operation that waits to be "
            "resumed needs a worker with its code."
        )


def _retention() -> Iterator[str]:
    if conf.RETENTION is not None and conf.RETENTION.total_seconds() < DAY:
        yield f"IDEMPOTENCY['RETENTION'] is {conf.RETENTION}: {_TOO_SHORT}"


_TOO_SHORT: Final = (
    "a client that retries later runs the request again, or is refused. 24 hours is the least that clients expect."
)


def _operations(using: str) -> Iterator[str]:
    for name, seen in operations(using).items():
        if seen.retention is not None and seen.retention < DAY:
            yield f"{name!r} keeps its answers for {seen.retention} s: {_TOO_SHORT}"
        slow = seen.slowest_hundredth
        if slow is not None and not seen.has_room:
            yield (
                f"{name!r} has a lease of {seen.lease} s, and one of a hundred runs takes {slow:.1f} s or more: "
                f"make the lease at least {ceil(3 * slow)} s."
            )


def _clock(using: str, clock: Clock) -> Iterator[str]:
    """Asked of the duties' table, because a statement needs a row to say the time in."""
    before = clock()
    there = DutyRun.objects.using(using).aggregate(now=Max(StatementNow()))["now"]
    after = clock()
    if there is None or timezone.is_naive(there):
        return
    apart = max(before - there, there - after).total_seconds()
    if apart > CLOCK_SECONDS:
        yield (
            f"This machine's clock and the database's are {apart:.0f} s apart. Leases do not mind; messages that "
            "expire, signatures and logs do: synchronize the clocks."
        )
