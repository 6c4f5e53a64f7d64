"""Counters and a histogram for Prometheus, correct in its multiprocess mode.

INSTALLED_APPS = [..., "django_idempotency.contrib.prometheus.PrometheusConfig"]
"""

from typing import Final

from django.apps import AppConfig
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from django_idempotency.metrics import DURATION, DURATION_MEANING, METRICS, PREFIX, subscribe

UID: Final = "django_idempotency.contrib.prometheus"


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

    def count(name: str, operation: str, amount: int) -> None:
        counters[name].labels(operation).inc(amount)

    def observe(operation: str, seconds: float) -> None:
        duration.labels(operation).observe(seconds)

    subscribe(count, observe, uid)


def spelled(name: str) -> str:
    """Prometheus knows no dots."""
    return (PREFIX + name).replace(".", "_")
