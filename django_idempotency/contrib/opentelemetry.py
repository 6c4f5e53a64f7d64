"""Counters and a histogram for OpenTelemetry. Needs its API only; the project configures the SDK.

INSTALLED_APPS = [..., "django_idempotency.contrib.opentelemetry.OpenTelemetryConfig"]
"""

from typing import Final

from django.apps import AppConfig
from opentelemetry.metrics import MeterProvider, get_meter

from django_idempotency.monitoring.metrics import DURATION, DURATION_MEANING, METRICS, PREFIX, subscribe

UID: Final = "django_idempotency.contrib.opentelemetry"


class OpenTelemetryConfig(AppConfig):
    name = "django_idempotency.contrib"
    label = "django_idempotency_opentelemetry"

    def ready(self) -> None:
        install()


def install(provider: MeterProvider | None = None, uid: str = UID) -> None:
    """Create the instruments and feed them from the signals."""
    meter = get_meter("django_idempotency", meter_provider=provider)
    counters = {PREFIX + each.name: meter.create_counter(PREFIX + each.name, "1", each.meaning) for each in METRICS}
    duration = meter.create_histogram(PREFIX + DURATION, "s", DURATION_MEANING)

    def count(name: str, operation: str, amount: int) -> None:
        counters[name].add(amount, {"operation": operation})

    def observe(operation: str, seconds: float) -> None:
        duration.record(seconds, {"operation": operation})

    subscribe(count, observe, uid)
