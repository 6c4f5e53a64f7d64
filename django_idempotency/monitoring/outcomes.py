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
from typing import Any, Final, NamedTuple

from django.core.signals import setting_changed
from django.db import connections

from django_idempotency.conf import conf
from django_idempotency.flow.schemas import current_schema, enter_schema, has_schemas
from django_idempotency.monitoring.metrics import PREFIX, subscribe, unsubscribe
from django_idempotency.signals import logger
from django_idempotency.store import counts, threads
from django_idempotency.store.limits import limited
from django_idempotency.store.records import alias

UID: Final = "django_idempotency.monitoring.outcomes"
FLUSH_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 5.0
MOST_BUCKETS: Final = 10_000  # while the database is away, memory stays bounded and the newest minutes are lost
COMPLETED: Final = "completed"


class Bucket(NamedTuple):
    """What is counted together, and the table that the count belongs to."""

    using: str
    schema: str  # where each tenant has tables of its own
    minute: int  # of this process's own clock
    operation: str
    outcome: str

    @classmethod
    def of(cls, operation: str, outcome: str) -> "Bucket":
        """Name the bucket of an outcome that occurs now, here."""
        using = alias()
        schema = current_schema(using) if has_schemas() else ""
        return cls(using, schema, int(monotonic() // 60), operation[:255], outcome)


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
            self._put({Bucket.of(operation, metric.removeprefix(PREFIX)): amount})
            self._schedule()

    def flush(self) -> None:
        """Write all counts; those that cannot be written now are kept for the next time."""
        with self._lock:
            taken, self._counted = self._counted, Counter()
        try:
            for bucket in sorted(taken):
                with enter_schema(bucket.schema), limited(bucket.using, WRITE_SECONDS):
                    _write(bucket, taken[bucket])
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
            self._timer = threads.start_for_process("counts", self._flush_apart, FLUSH_SECONDS)

    def _flush_apart(self) -> None:
        self.flush()
        connections.close_all()
        with self._lock:
            self._timer = None
            if self._counted:
                self._schedule()


def _write(bucket: Bucket, amount: int) -> None:
    ago = max(monotonic() - (bucket.minute + 0.5) * 60, 0.0)  # the database decides which of its own minutes that was
    counts.accumulate(ago, bucket.operation, bucket.outcome, amount, bucket.using)


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
