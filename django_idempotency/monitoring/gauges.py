"""Gauges: what is open now, for how long, and when each maintenance job last succeeded. Both backends export them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

from django.db import connections

from django_idempotency.core.states import Status
from django_idempotency.flow.unattended import needs_person
from django_idempotency.monitoring.health import get_longest_silence
from django_idempotency.monitoring.jobs import SCHEDULED
from django_idempotency.signals import logger
from django_idempotency.store.gauges import COUNTED_AT_MOST, COUNTED_EXACTLY, Readings, read_gauges
from django_idempotency.store.limits import in_transaction, limited
from django_idempotency.store.records import alias

LIMIT_SECONDS: Final = 5.0
REUSE_SECONDS: Final = 5.0  # OpenTelemetry asks for each gauge on its own

Samples = Iterator[tuple[str, float]]  # the label's value, if there is a label, and the gauge's


@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge, with at most one label."""

    name: str
    meaning: str
    read: Callable[[Readings], Samples]
    label: str = ""
    unit: str = ""


def _read_open(found: Readings) -> Samples:
    yield from ((status.value, found.open[status]) for status in sorted(Status.OPEN))


def _read_oldest(found: Readings) -> Samples:
    yield from ((status.value, found.oldest.get(status, 0.0)) for status in sorted(Status.OPEN))


def _read_unattended(found: Readings) -> Samples:
    alone = (each for each in found.unknowns if needs_person(each.operation, each.run_name, each.on_lost_lease))
    yield "", sum(each.number for each in alone)


def _read_jobs(found: Readings) -> Samples:
    for job in SCHEDULED:
        ago = found.succeeded_ago.get(job.name)
        yield job.name, inf if ago is None else ago


def _read_single(column: str) -> Callable[[Readings], Samples]:
    return lambda found: iter([("", getattr(found, column))])


GAUGES: Final = (
    Gauge(
        "open", f"Unfinished records, by state. Each state is counted up to {COUNTED_AT_MOST:,}.", _read_open, "state"
    ),
    Gauge("oldest", "Age of the oldest unfinished record of each state.", _read_oldest, "state", "seconds"),
    Gauge("unattended", "Unknown outcomes that have no reconciler, and that no retry restarts.", _read_unattended),
    Gauge("overdue", "Leases that expired and that the sweeper has not handled yet.", _read_single("overdue")),
    Gauge("waiting", "Accepted work that no worker has begun.", _read_single("waiting")),
    Gauge("live", f"Records in the table. An estimate above {COUNTED_EXACTLY:,}.", _read_single("live")),
    Gauge(
        "job_success_age",
        "Time since a maintenance job last ended without an error. Infinite if it never did.",
        _read_jobs,
        "maintenance_job",
        "seconds",
    ),
)


class Reader:
    """Reads the gauges at most once in a few seconds. Never raises: an exporter has other metrics to show."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read_at = -inf
        self._readings: Readings | None = None

    def read(self) -> Readings | None:
        """Return the readings; None if the store did not respond."""
        with self._lock:
            if monotonic() - self._read_at > REUSE_SECONDS:
                self._readings = _try_to_read()
                self._read_at = monotonic()
            return self._readings


def _try_to_read() -> Readings | None:
    using = alias()
    own = not in_transaction(using)  # no request looks after the connection of an exporter's own thread
    try:
        if own:
            connections[using].close_if_unusable_or_obsolete()
        with limited(using, LIMIT_SECONDS):
            return read_gauges(get_longest_silence().total_seconds(), using)
    except Exception:  # noqa: BLE001 - whatever it is, the exporter's other metrics are shown
        logger.warning("The gauges could not be read; they are missing from this export.", exc_info=True)
        return None
    finally:
        if own:
            connections[using].close_if_unusable_or_obsolete()
