"""Spans around protected requests and maintenance jobs. Until a tracer is installed, they cost nothing."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from django_idempotency.core.calls import Call

SetAttributes: TypeAlias = Callable[[Mapping[str, Any]], None]
OpenSpan: TypeAlias = Callable[[str, Mapping[str, str]], AbstractContextManager[SetAttributes]]

open_span: OpenSpan | None = None


def install(opener: OpenSpan | None) -> None:
    """Open spans with this function from now on; None stops it."""
    global open_span
    open_span = opener


def trace_request(call: Call) -> AbstractContextManager[Any]:
    """Open the span of a protected request. It names the record by its reference and never by its key."""
    if open_span is None:
        return nullcontext()
    operation = call.label or call.operation
    attributes = {"operation": operation, "mode": call.policy.mode.value, "record": str(call.id)}
    return open_span(f"idempotency {operation}", attributes)


def trace_job(job: str) -> AbstractContextManager[SetAttributes]:
    """Open the span of one run of a maintenance job. It gets the run's counts at the end."""
    if open_span is None:
        return nullcontext(lambda counts: None)
    return open_span(f"idempotency {job}", {"job": job})
