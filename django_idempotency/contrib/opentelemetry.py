"""Counters, gauges, a histogram and spans for OpenTelemetry. Needs its API only; the project configures the SDK.

Django imports this module before there are models, so what needs them is imported where it is used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from django.apps import AppConfig
from django.dispatch import Signal
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
from opentelemetry.trace import Span, StatusCode, TracerProvider, get_tracer, use_span

from django_idempotency import signals
from django_idempotency.core.states import Status
from django_idempotency.flow import tracing
from django_idempotency.monitoring.metrics import DURATION, DURATION_MEANING, METRICS, PREFIX, subscribe

if TYPE_CHECKING:
    from django_idempotency.monitoring.gauges import Gauge, Reader

__all__ = ["OpenTelemetryConfig"]

UID: Final = "django_idempotency.contrib.opentelemetry"
DECISIONS: Final[Mapping[Signal, tuple[str, str]]] = {  # what the request got, and the state that it found or made
    signals.reserved: ("execute", Status.IN_PROGRESS),
    signals.retried: ("execute_again", Status.IN_PROGRESS),
    signals.renewed: ("execute", Status.IN_PROGRESS),
    signals.taken_over: ("take_over", Status.IN_PROGRESS),
    signals.replayed: ("replay", Status.COMPLETED),
    signals.in_flight: ("in_progress", Status.IN_PROGRESS),
    signals.misused: ("mismatch", ""),
    signals.in_doubt: ("outcome_unknown", Status.UNKNOWN),
    signals.refused_expired: ("expired", Status.EXPIRED),
}
ENDS: Final[Mapping[Signal, str]] = {
    signals.completed: Status.COMPLETED,
    signals.released: Status.FAILED_RETRYABLE,
    signals.doubted: Status.UNKNOWN,
    signals.fence_lost: "lease_lost",
}
_current: Final[ContextVar[tuple[str, Span] | None]] = ContextVar("idempotency_span", default=None)


class OpenTelemetryConfig(AppConfig):
    """Export metrics and spans to OpenTelemetry: add this app to INSTALLED_APPS."""

    name = "django_idempotency.contrib"
    label = "django_idempotency_opentelemetry"

    def ready(self) -> None:
        install()
        install_spans()


def install(provider: MeterProvider | None = None, uid: str = UID) -> None:
    """Create the instruments. The signals feed them, and each export reads the gauges."""
    from django_idempotency.monitoring.gauges import GAUGES, Reader

    meter = get_meter("django_idempotency", meter_provider=provider)
    counters = {PREFIX + each.name: meter.create_counter(PREFIX + each.name, "1", each.meaning) for each in METRICS}
    duration = meter.create_histogram(PREFIX + DURATION, "s", DURATION_MEANING)
    reader = Reader()
    for gauge in GAUGES:
        meter.create_observable_gauge(
            PREFIX + gauge.name, [_make_callback(gauge, reader)], gauge.unit and "s", gauge.meaning
        )

    def count(name: str, operation: str, amount: int) -> None:
        counters[name].add(amount, {"operation": operation})

    def observe(operation: str, seconds: float) -> None:
        duration.record(seconds, {"operation": operation})

    subscribe(count, observe, uid)


def _make_callback(gauge: "Gauge", reader: "Reader") -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        found = reader.read()
        if found is not None:
            for label, value in gauge.read(found):
                yield Observation(value, {gauge.label: label} if gauge.label else {})

    return observe


def install_spans(provider: TracerProvider | None = None) -> None:
    """Open a span for each protected request and each run of a maintenance job."""
    tracer = get_tracer("django_idempotency", tracer_provider=provider)

    @contextmanager
    def open_span(name: str, attributes: Mapping[str, str]) -> Iterator[tracing.SetAttributes]:
        span = tracer.start_span(name, attributes=_prefix(attributes))
        token = _current.set((attributes.get("record", ""), span))
        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                yield lambda found: span.set_attributes(_prefix(found))
        except BaseException as error:
            # Its class alone: the message of an exception may repeat what the request held.
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            _current.reset(token)
            span.end()

    tracing.install(open_span)
    for signal, (decision, state) in DECISIONS.items():
        _tell(signal, {"decision": decision, "state": state})
    for signal, state in ENDS.items():
        _tell(signal, {"state": state})


def remove_spans() -> None:
    """Undo `install_spans`."""
    tracing.install(None)
    for signal in (*DECISIONS, *ENDS):
        signal.disconnect(dispatch_uid=(UID, "span"))


def _tell(signal: Signal, attributes: Mapping[str, str]) -> None:
    """Set these attributes of the request's span when the signal is sent about its record."""

    def receive(*, call: Any, **_payload: Any) -> None:
        current = _current.get()
        if current is not None and current[0] == str(call.id):
            current[1].set_attributes(_prefix(attributes))

    signal.connect(receive, weak=False, dispatch_uid=(UID, "span"))


def _prefix(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"idempotency.{name}": value for name, value in attributes.items() if value != ""}
