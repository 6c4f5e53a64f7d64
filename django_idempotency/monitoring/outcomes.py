"""Outcomes per minute for the dashboard, if `COUNT_OUTCOMES` is on.

A process counts signals in memory and writes the counts every few seconds, in its own thread and on its own connection:
a replay stays free of writes, and a failure here affects the dashboard alone.
"""

import atexit
import os
from collections import Counter
from collections.abc import Mapping
from threading import Lock, Timer
from time import monotonic
from typing import Any, Final

from django.core.signals import setting_changed
from django.db import connections

from django_idempotency.conf import conf
from django_idempotency.monitoring.metrics import PREFIX, subscribe, unsubscribe
from django_idempotency.signals import logger
from django_idempotency.store import counts
from django_idempotency.store.limits import limited
from django_idempotency.store.records import alias

UID: Final = "django_idempotency.monitoring.outcomes"
FLUSH_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 5.0
MOST_BUCKETS: Final = 10_000  # while the database is away, memory stays bounded and the newest minutes are lost
COMPLETED: Final = "completed"

Bucket = tuple[int, str, str]  # minute of this process's own clock, operation, outcome


class Counters:
    """Counts of this process that are not written yet."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all counts. In a forked child they belong to the parent, and the flush thread does not survive."""
        self._lock = Lock()
        self._counted: Counter[Bucket] = Counter()
        self._timer: Timer | None = None

    def add(self, metric: str, operation: str, amount: int) -> None:
        with self._lock:
            self._put({(_get_minute(), operation[:255], metric.removeprefix(PREFIX)): amount})
            self._schedule()

    def flush(self) -> None:
        """Write all counts; those that cannot be written now are kept for the next time."""
        with self._lock:
            taken, self._counted = self._counted, Counter()
        using = alias()
        try:
            for bucket in sorted(taken):
                with limited(using, WRITE_SECONDS):
                    _write(bucket, taken[bucket], using)
                del taken[bucket]
        except Exception:  # noqa: BLE001 - no error here may reach a request
            logger.warning("Counts of outcomes could not be written; the next flush tries again.", exc_info=True)
            with self._lock:
                self._put(taken)

    def _put(self, counted: Mapping[Bucket, int]) -> None:
        for bucket, amount in counted.items():
            if bucket in self._counted or len(self._counted) < MOST_BUCKETS:
                self._counted[bucket] += amount

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = Timer(FLUSH_SECONDS, self._flush_apart)
            self._timer.daemon = True
            self._timer.start()

    def _flush_apart(self) -> None:
        self.flush()
        connections.close_all()
        with self._lock:
            self._timer = None
            if self._counted:
                self._schedule()


def _get_minute() -> int:
    return int(monotonic() // 60)


def _write(bucket: Bucket, amount: int, using: str) -> None:
    minute, operation, outcome = bucket
    ago = max(monotonic() - (minute + 0.5) * 60, 0.0)  # the database decides which of its own minutes that was
    counts.accumulate(ago, operation, outcome, amount, using)


COUNTERS: Final = Counters()
os.register_at_fork(after_in_child=COUNTERS.reset)
atexit.register(COUNTERS.flush)


def install() -> None:
    """Count while `COUNT_OUTCOMES` is on. A project that does not count has no receiver on its requests' way."""
    _follow_setting(setting="IDEMPOTENCY")
    setting_changed.connect(_follow_setting, dispatch_uid=UID)


def _follow_setting(*, setting: str, **kwargs: Any) -> None:
    if setting != "IDEMPOTENCY":
        return
    try:
        counts_outcomes = conf.COUNT_OUTCOMES
    except (ValueError, TypeError):  # checks E001 and E003 report it
        counts_outcomes = False
    if counts_outcomes:
        subscribe(COUNTERS.add, lambda operation, seconds: COUNTERS.add(COMPLETED, operation, 1), UID)
    else:
        unsubscribe(UID)
