"""The metrics and the signals that move them. Prometheus and OpenTelemetry read this one table; no label is a key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.dispatch import Signal

from django_idempotency import signals

Count = Callable[[str, str, int], None]  # metric, operation, amount
Observe = Callable[[str, float], None]  # operation, seconds

PREFIX: Final = "api.idempotency."


@dataclass(frozen=True, slots=True)
class Metric:
    """One counter, moved by one or more signals."""

    name: str
    meaning: str
    moved_by: tuple[Signal, ...]


METRICS: Final = (
    Metric("reserve.created", "New keys claimed.", (signals.reserved, signals.renewed)),
    Metric("reserve.replay", "Stored responses replayed.", (signals.replayed,)),
    Metric("reserve.in_progress", "Requests that found the first one still running.", (signals.in_flight,)),
    Metric("reserve.key_misuse", "Keys reused with a different request.", (signals.misused,)),
    Metric("reserve.failed_retry", "Keys claimed again after proof that nothing happened.", (signals.retried,)),
    Metric("reserve.unknown", "Requests that found an unknown outcome.", (signals.in_doubt,)),
    Metric("reserve.expired", "Requests rejected because their key has expired.", (signals.refused_expired,)),
    Metric("store.error", "Times the database did not answer within its limit.", (signals.store_failed,)),
    Metric("cache.hit", "Replays that came from the cache.", (signals.cache_hit,)),
    Metric("cache.miss", "Requests that the cache had no response for.", (signals.cache_missed,)),
    Metric("cache.rejected", "Cache entries that this installation did not write.", (signals.cache_rejected,)),
    Metric("cache.error", "Errors of the cache, which were ignored.", (signals.cache_failed,)),
    Metric("zombie_key", "Leases that expired: crashed or slow workers.", (signals.lease_lapsed,)),
    Metric("ttl_pruned", "Records deleted after their retention.", (signals.pruned,)),
    Metric("reconcile.scheduled", "Outcomes that became unknown.", (signals.doubted, signals.lease_lapsed)),
    Metric("reconcile.resolved", "Unknown outcomes settled.", (signals.resolved,)),
    Metric("reconcile.failed", "Reconciler checks that were inconclusive.", (signals.reconcile_failed,)),
    Metric("reconcile.unattended", "Checks of unknown outcomes that found no reconciler.", (signals.unattended,)),
    Metric("reconcile.dead_letter", "Unknown outcomes that became dead letters.", (signals.dead_lettered,)),
    Metric("resume.taken_over", "Lost attempts that were continued.", (signals.taken_over,)),
    Metric("resume.failed", "Operations that failed again when they were continued.", (signals.resume_failed,)),
    Metric("lease.lost", "Attempts that were rejected after losing their lease.", (signals.fence_lost,)),
)
DURATION: Final = "handler.duration"
DURATION_MEANING: Final = "Seconds from the claim to the stored response."


def subscribe(count: Count, observe: Observe, uid: str) -> None:
    """Connect a backend. Connecting it again changes nothing."""
    for metric in METRICS:
        for signal in metric.moved_by:
            signal.connect(_make_counter(metric.name, count), weak=False, dispatch_uid=(uid, metric.name))
    signals.completed.connect(_make_observer(observe), weak=False, dispatch_uid=(uid, DURATION))


def unsubscribe(uid: str) -> None:
    """Disconnect a backend."""
    for metric in METRICS:
        for signal in metric.moved_by:
            signal.disconnect(dispatch_uid=(uid, metric.name))
    signals.completed.disconnect(dispatch_uid=(uid, DURATION))


def _make_counter(name: str, count: Count) -> Callable[..., None]:
    def receive(**payload: Any) -> None:
        count(PREFIX + name, _find_operation(payload), payload.get("count", 1))

    return receive


def _make_observer(observe: Observe) -> Callable[..., None]:
    def receive(**payload: Any) -> None:
        observe(_find_operation(payload), payload["seconds"])

    return receive


def _find_operation(payload: dict[str, Any]) -> str:
    call = payload.get("call")
    return call.label or call.operation if call is not None else ""
