"""A record as a person reads it in a terminal: what it is, what happened, what can be done."""

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from django.core.management.color import Style

from django_idempotency.conf import conf
from django_idempotency.console.downstream import list_derived
from django_idempotency.console.outlook import Outlook, describe_outlook
from django_idempotency.console.timeline import Entry, build_timeline
from django_idempotency.console.wording import EFFECTS, STATES
from django_idempotency.core.states import Status
from django_idempotency.management.decisions import describe_steps, find_doubtful, list_commands
from django_idempotency.management.references import Target
from django_idempotency.management.tables import escape
from django_idempotency.models import IdempotencyEvent
from django_idempotency.monitoring.units import format_clock, format_duration, format_interval
from django_idempotency.store.records import read_effect

_INDENT: Final = "  "
_TONES: Final = {"good": "SUCCESS", "bad": "ERROR", "doubt": "WARNING"}
_STATE_TONES: Final = {"worst": "ERROR", "doubt": "WARNING", "bad": "ERROR", "good": "SUCCESS"}

Paint = Callable[[str], str]


def write_story(
    target: Target, events: Sequence[IdempotencyEvent], style: Style, width: int, *, content: bool
) -> Iterator[str]:
    """Yield the lines of the story. Messages of exceptions are content."""
    row = target.row
    state, outlook = STATES[Status(row.status)], describe_outlook(row)
    yield f"{escape(row.operation or row.scope)}: {_paint(style, _STATE_TONES.get(state.tone, ''))(str(state.label))}"
    yield from _wrap(str(outlook.meaning), width, _INDENT)
    if outlook.warning:
        yield from map(style.WARNING, _wrap(f"Warning: {outlook.warning}", width, _INDENT))
    yield ""
    facts = [fact for fact in list_facts(row, events, outlook) if fact[1]]
    column = max(len(name) for name, _ in facts) + 2
    for name, text in facts:
        yield f"{_INDENT}{name:<{column}}{escape(text)}"
    yield ""
    yield "What happened"
    for entry in build_timeline(row, events):
        yield from _write_entry(entry, style, width, content=content)
    if commands := list(list_commands(target)):
        yield ""
        yield "What you can do"
        for command, label in commands:
            yield f"{_INDENT}{escape(command)}"
            yield f"{_INDENT * 2}{label}"


def list_facts(row: Any, events: Sequence[IdempotencyEvent], outlook: Outlook) -> Iterator[tuple[str, str]]:
    """Yield what the record is, each with its name; empty texts are left out."""
    yield "id", str(row.id)
    yield "key", row.key
    yield "tenant", row.tenant
    yield "principal", row.principal
    yield "request", f"{row.request_method} {row.request_path}".strip()
    yield "created", f"{format_clock(row.created_at)}, {format_interval(row.read_at - row.created_at)} ago"
    yield "attempts", f"{row.attempts}, lease {format_interval(row.lease_seconds)}"
    yield "steps", describe_steps(row)
    yield "last error", row.last_error_code
    yield "response", _describe_response(row)
    yield "effect", str(EFFECTS[read_effect(row)])
    if row.reconcile_attempts:
        yield "reconciler", f"asked {row.reconcile_attempts} of {conf.RECONCILE_TRIES} times"
    yield "next", outlook.text
    if row.status in Status.IN_DOUBT:
        keys = [row.derive(name) for name in find_doubtful(row) or list_derived(events)]
        yield "downstream keys", ", ".join(keys) or f"begin with {row.derive('-')[:-1]}"


def _describe_response(row: Any) -> str:
    if row.response_status is None or row.completed_at is None:
        return ""
    took = row.completed_at - (row.last_run_at or row.created_at)
    return f"{row.response_status}, stored {format_clock(row.completed_at)}, after {format_duration(took)}"


def _write_entry(entry: Entry, style: Style, width: int, *, content: bool) -> Iterator[str]:
    when = format_clock(entry.at) if entry.at else ""
    paint = _paint(style, _TONES.get(entry.tone, ""))
    about = f" ({entry.cite})" if entry.cite else ""
    by = f", by {escape(entry.actor)}" if entry.actor else ""
    yield f"{_INDENT}{when:<19}  {paint(str(entry.title))}{by}{about}"
    message = entry.message if content or not entry.message else "The message of the exception is shown with --body."
    trace = f"trace or request: {entry.trace}" if entry.trace else ""
    for text in (", ".join(entry.notes), entry.reason, message, trace):
        yield from _wrap(text, width, " " * 23)


def _wrap(text: str, width: int, indent: str) -> list[str]:
    text = escape(" ".join(text.split()))
    return wrap(text, max(width, 40), initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def _paint(style: Style, name: str) -> Paint:
    return getattr(style, name) if name else str
