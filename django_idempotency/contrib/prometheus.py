"""Counters, gauges and a histogram for Prometheus, correct in its multiprocess mode.

Django imports this module before there are models, so what needs them is imported where it is used.
"""

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from django.apps import AppConfig
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from django_idempotency import signals
from django_idempotency.conf import urlconf
from django_idempotency.monitoring.metrics import DURATION, DURATION_MEANING, METRICS, PREFIX, subscribe

__all__ = ["PrometheusConfig", "RecordsCollector"]

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
    """Export metrics to Prometheus: add this app to INSTALLED_APPS."""

    name = "django_idempotency.contrib"
    label = "django_idempotency_prometheus"

    def ready(self) -> None:
        install()


class RecordsCollector(Collector):
    """The gauges, which each scrape reads with one bounded query. Register it in a registry of your own as well."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        from django_idempotency.monitoring.gauges import GAUGES, Reader

        self._gauges, self._reader = GAUGES, Reader()
        self._before = before

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges without values, so that registering the collector reads no table."""
        for gauge in self._gauges:
            name = "_".join(filter(None, [convert_name(gauge.name), gauge.unit]))
            yield GaugeMetricFamily(name, gauge.meaning, labels=[gauge.label] if gauge.label else None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self._before()
        found = self._reader.read()
        if found is None:
            return
        for gauge, family in zip(self._gauges, self.describe(), strict=True):
            for label, value in gauge.read(found):
                family.add_metric([label] if gauge.label else [], value)
            yield family


def install(registry: CollectorRegistry = REGISTRY, uid: str = UID) -> None:
    """Register the metrics. The signals feed the counters, and each scrape reads the gauges."""
    labels = ["operation"]

    @cache
    def start_series() -> None:
        """Start the counters at 0: increase() does not count the event that creates a series."""
        operations = find_operations()
        for each in METRICS:
            moved_by = set(each.moved_by)
            for operation in operations if moved_by - OF_NO_OPERATION else ():
                counters[PREFIX + each.name].labels(operation)
            if moved_by & OF_NO_OPERATION:
                counters[PREFIX + each.name].labels("")

    # The collector comes first, so that the first scrape shows the counters at 0. The URLs cannot be read any earlier.
    registry.register(RecordsCollector(before=(lambda: None) if MANY_PROCESSES else start_series))
    counters = {
        PREFIX + each.name: Counter(convert_name(each.name), each.meaning, labels, registry=registry)
        for each in METRICS
    }
    duration = Histogram(f"{convert_name(DURATION)}_seconds", DURATION_MEANING, labels, registry=registry)

    def count(name: str, operation: str, amount: int) -> None:
        start_series()
        counters[name].labels(operation).inc(amount)

    def observe(operation: str, seconds: float) -> None:
        duration.labels(operation).observe(seconds)

    subscribe(count, observe, uid)


def find_operations() -> set[str]:
    """Return the operations of the project's protected views, and those that are registered."""
    from django_idempotency.flow.registry import known_operations
    from django_idempotency.http.urlconf import operation_names

    root = urlconf()
    return {*(operation_names(root) if root else ()), *known_operations()}


def convert_name(name: str) -> str:
    """Return the name as Prometheus allows it, without dots."""
    return (PREFIX + name).replace(".", "_")
