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
# Where what counts nothing leaves no file behind. The library knows both spellings.
MANY_PROCESSES: Final = "PROMETHEUS_MULTIPROC_DIR" in map(str.upper, os.environ)
OF_NO_OPERATION: Final = {
    signals.lease_lapsed,
    signals.resolved,
    signals.reconcile_failed,
    signals.resume_failed,
    signals.dead_lettered,
    signals.pruned,
    signals.store_failed,
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
        PREFIX + each.name: Counter(spelled(each.name), each.meaning, labels, registry=registry) for each in METRICS
    }
    duration = Histogram(f"{spelled(DURATION)}_seconds", DURATION_MEANING, labels, registry=registry)

    @cache
    def begin() -> None:
        """What is counted without an operation, at 0: increase() misses the event that a series begins with."""
        for each in METRICS:
            if not OF_NO_OPERATION.isdisjoint(each.moved_by):
                counters[PREFIX + each.name].labels("")

    def count(name: str, operation: str, amount: int) -> None:
        begin()
        counters[name].labels(operation).inc(amount)

    def observe(operation: str, seconds: float) -> None:
        duration.labels(operation).observe(seconds)

    if not MANY_PROCESSES:
        begin()
    subscribe(count, observe, uid)


def spelled(name: str) -> str:
    """Prometheus knows no dots."""
    return (PREFIX + name).replace(".", "_")
