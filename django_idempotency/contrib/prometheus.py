"""Counters and a histogram for Prometheus, correct in its multiprocess mode.

INSTALLED_APPS = [..., "django_idempotency.contrib.prometheus.PrometheusConfig"]
"""

import os
from functools import cache
from typing import Final

from django.apps import AppConfig
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from django_idempotency import signals
from django_idempotency.monitoring.metrics import DURATION, DURATION_MEANING, METRICS, PREFIX, subscribe

UID: Final = "django_idempotency.contrib.prometheus"
# In this mode, a metric at 0 would leave a file behind. The library knows both spellings.
MANY_PROCESSES: Final = "PROMETHEUS_MULTIPROC_DIR" in map(str.upper, os.environ)
OF_NO_OPERATION: Final = {
    signals.lease_lapsed,
    signals.resolved,
    signals.reconcile_failed,
    signals.resume_failed,
    signals.dead_lettered,
    signals.unattended,
    signals.pruned,
    signals.store_failed,
    signals.cache_failed,
}


class PrometheusConfig(AppConfig):
    name = "django_idempotency.contrib"
    label = "django_idempotency_prometheus"

    def ready(self) -> None:
        install()


def install(registry: CollectorRegistry = REGISTRY, uid: str = UID) -> None:
    """Register the metrics and feed them from the signals."""
    labels = ["operation"]
    counters = {
        PREFIX + each.name: Counter(convert_name(each.name), each.meaning, labels, registry=registry)
        for each in METRICS
    }
    duration = Histogram(f"{convert_name(DURATION)}_seconds", DURATION_MEANING, labels, registry=registry)

    @cache
    def start_series() -> None:
        """Start metrics without an operation at 0: increase() does not count the event that creates a series."""
        for each in METRICS:
            if not OF_NO_OPERATION.isdisjoint(each.moved_by):
                counters[PREFIX + each.name].labels("")

    def count(name: str, operation: str, amount: int) -> None:
        start_series()
        counters[name].labels(operation).inc(amount)

    def observe(operation: str, seconds: float) -> None:
        duration.labels(operation).observe(seconds)

    if not MANY_PROCESSES:
        start_series()
    subscribe(count, observe, uid)


def convert_name(name: str) -> str:
    """Return the name as Prometheus allows it, without dots."""
    return (PREFIX + name).replace(".", "_")
