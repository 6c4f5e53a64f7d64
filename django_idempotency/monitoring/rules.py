"""The rules by which the doctor, the health view and the dashboard find what is wrong.

`find_problems` decides from one snapshot and asks nothing itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from django_idempotency.conf import conf
from django_idempotency.monitoring.durations import OperationStats
from django_idempotency.monitoring.findings import Code, Finding
from django_idempotency.monitoring.jobs import SCHEDULED
from django_idempotency.store.deletion import constrained_pointers
from django_idempotency.store.server import Server, statement_size

LATE_SECONDS: Final = 600  # ten sweeps of the usual schedule
UNKNOWN_SECONDS: Final = 3600
UNKNOWN_MANY: Final = 50  # as the alert IdempotencyUnknownMany
CLOCK_SECONDS: Final = 2.0
HEARTBEATS_SECONDS: Final = 86_400  # for so long a heartbeat that failed is reported
_DAY: Final = 86_400
_READ_ONLY: Final = ("in_hot_standby", "read_only", "transaction_read_only", "tx_read_only")
_DURABLE: Final = {
    "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
    "innodb_flush_log_at_trx_commit": ("1", "3"),
}
_WAIT_BEFORE_READS: Final = 1  # a bit of wsrep_sync_wait


@dataclass(frozen=True, slots=True)
class JobRun:
    """The last run of a maintenance job."""

    job: str
    finished_ago: float | None  # seconds
    counts: Mapping[str, int]
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
    heartbeats: int = 0  # that failed twice in a row
    clocks_apart: float | None = None
    missing_secrets: Sequence[str] = ()  # that made fingerprints of records, and that this process lacks
    pooled: tuple[str, ...] = ()  # options in use that a pooler in transaction mode breaks
    server: Server = field(default_factory=Server)


def find_problems(seen: Snapshot) -> list[Finding]:
    """Return what is wrong, the most urgent first; an empty list if nothing is."""
    found = [*_find_stuck(seen), *_find_failed_jobs(seen), *_find_missed_jobs(seen), *_find_unknown(seen)]
    found += [
        *_find_missing_secrets(seen),
        *_find_short_retention(),
        *_find_operations(seen),
        *_find_failed_heartbeats(seen),
        *_find_clocks(seen),
        *_find_pooler(seen),
    ]
    return [*found, *_find_server(seen.server)]


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
    if seen.unknown > UNKNOWN_MANY:
        yield Finding(Code.UNKNOWN_MANY, {"count": seen.unknown})


def _find_missing_secrets(seen: Snapshot) -> Iterator[Finding]:
    yield from (Finding(Code.FINGERPRINT_UNREADABLE, {"secret": secret}) for secret in seen.missing_secrets)


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


def _find_failed_heartbeats(seen: Snapshot) -> Iterator[Finding]:
    if seen.heartbeats:
        yield Finding(Code.HEARTBEAT_FAILED, {"count": seen.heartbeats})


def _find_clocks(seen: Snapshot) -> Iterator[Finding]:
    if seen.clocks_apart is not None and seen.clocks_apart > CLOCK_SECONDS:
        yield Finding(Code.CLOCKS_APART, {"difference": seen.clocks_apart})


def _find_pooler(seen: Snapshot) -> Iterator[Finding]:
    if seen.pooled:
        yield Finding(Code.POOLER, {"options": ", ".join(seen.pooled)})


def _find_server(server: Server) -> Iterator[Finding]:
    settings = server.settings
    for name in _READ_ONLY:
        if settings.get(name) == "on":
            yield Finding(Code.READ_ONLY, {"setting": name})
            break
    if not server.keeps_unique:
        yield Finding(Code.UNIQUE_MISSING)
    if not server.has_unique_id:
        yield from (Finding(Code.FOREIGN_KEY, {"field": str(each.field)}) for each in constrained_pointers())
    for name, durable in _DURABLE.items():
        if settings.get(name, durable[0]) not in durable:
            yield Finding(Code.COMMITS_LOST, {"setting": name, "value": settings[name]})
    waits = settings.get("synchronous_standby_names") and settings.get("synchronous_commit") not in ("off", "local")
    if server.standbys and not waits:
        yield Finding(Code.STANDBYS_LATE, {"count": server.standbys})
    yield from _find_galera(settings)
    yield from find_small_packet(settings)
    if settings.get("client_connection_check_interval") == "0":
        yield Finding(Code.CLIENTS_UNNOTICED)
    if server.look_alike:
        yield Finding(Code.LOOK_ALIKE, {"engine": server.look_alike})


def find_small_packet(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Find a limit on statements below the one on bodies."""
    body = conf.MAX_BODY
    packet, least = int(settings.get("max_allowed_packet", 0)), statement_size(body)
    if 0 < packet < least:
        yield Finding(Code.PACKET_SMALL, {"value": packet, "body": body, "least": least})


def _find_galera(settings: Mapping[str, str]) -> Iterator[Finding]:
    if settings.get("wsrep_on") != "on":
        return
    if not int(settings.get("wsrep_sync_wait", "0")) & _WAIT_BEFORE_READS:
        yield Finding(Code.READS_STALE, {"value": settings.get("wsrep_sync_wait", "0")})
    state = settings.get("wsrep_local_state_comment", "")
    if state != "synced":
        yield Finding(Code.NODE_NOT_SYNCED, {"state": state})
