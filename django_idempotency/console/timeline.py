"""What happened to a record, in order, from its columns, its steps and its events."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.console.actions import ACTIONS
from django_idempotency.console.bodies import replace_surrogates
from django_idempotency.core.audit import Kind
from django_idempotency.core.progress import Moment, Progress, Step, StepState
from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.monitoring.units import format_duration, format_interval
from django_idempotency.store.events import MOST_MISMATCHES

Text = str | Promise


KINDS: Final[dict[str, tuple[Text, str]]] = {  # of events: title and tone
    Kind.IN_DOUBT: (gettext_lazy("The attempt ended without a known outcome"), "doubt"),
    Kind.LEASE_EXPIRED: (gettext_lazy("The lease expired: the attempt's outcome is not known"), "doubt"),
    Kind.TAKEN_OVER: (gettext_lazy("Taken over and continued"), "move"),
    Kind.LANDED: (gettext_lazy("Settled: it happened"), "good"),
    Kind.CONFIRMED: (gettext_lazy("Settled: it happened"), "good"),
    Kind.STEP_LANDED: (gettext_lazy("Settled: the step in doubt had happened"), "good"),
    Kind.STEP_CONFIRMED: (gettext_lazy("Settled: the step in doubt had happened"), "good"),
    Kind.STEP_NOT_EXECUTED: (gettext_lazy("Settled: the step in doubt had not happened"), "good"),
    Kind.STEP_DISMISSED: (gettext_lazy("Settled by an operator: the step in doubt had not happened"), "good"),
    Kind.INCONCLUSIVE: (gettext_lazy("The reconciler could not tell what happened"), "doubt"),
    Kind.TOO_EARLY: (
        gettext_lazy("The reconciler found nothing, but the grace period had not passed: it will ask again"),
        "doubt",
    ),
    Kind.NOT_EXECUTED: (gettext_lazy("Settled: it did not happen"), "good"),
    Kind.CONFIRMED_TOO_LATE: (gettext_lazy("It happened after all, but the record had ended as failed"), "bad"),
    Kind.DEAD_LETTER: (gettext_lazy("Reconciliation gave up"), "bad"),
    Kind.MISMATCH: (gettext_lazy("The key was sent with a different request, which was refused"), "bad"),
    Kind.HEARTBEAT_FAILED: (gettext_lazy("Its heartbeat failed twice in a row, so its lease may expire"), "bad"),
    Kind.DENIED: (gettext_lazy("A webhook reported that it did not happen"), "doubt"),
    **{each.trace.kind: (each.trace.title, each.trace.tone) for each in ACTIONS if each.trace is not None},
}
PART_NAMES: Final[dict[str, Text]] = {
    "method": gettext_lazy("method"),
    "path": gettext_lazy("path"),
    "operation": gettext_lazy("operation"),
    "query": gettext_lazy("query string"),
    "content_type": gettext_lazy("content type"),
    "headers": gettext_lazy("headers"),
    "body": gettext_lazy("body"),
}
VERDICTS: Final = (Kind.LANDED, Kind.CONFIRMED)
LONGEST_RUN: Final = 8  # of steps in a row that are shown one by one
SHOWN_OF_RUN: Final = 3  # at both ends of a longer one
_AT_ONCE: Final = timedelta(seconds=2)  # between a take-over and the time that the record notes of it


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened."""

    title: Text
    tone: str = "move"
    at: datetime | None = None
    cite: str = ""
    actor: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()  # durations, attempts, tries
    message: str = ""  # of an exception: only for people who may see content
    trace: str = ""
    is_earlier: bool = False  # before the key was claimed again
    folded: tuple["Entry", ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """The entries in their order, and the steps that an older version recorded without a time."""

    entries: list[Entry]
    undated: list[Entry] = field(default_factory=list)


def build_timeline(
    row: IdempotencyKey, events: Iterable[IdempotencyEvent], steps: Sequence[Step] | None = None
) -> list[Entry]:
    """Return what happened, oldest first, and then the steps without a time."""
    steps, events = load_steps(row) if steps is None else steps, list(events)
    dated = [
        *_list_record_entries(row, events),
        *(entry for step in steps for entry in _list_step_entries(row, step)),
        *(_convert_event(event, row) for event in events),
    ]
    ordered = sorted(dated, key=lambda entry: entry.at or row.created_at)
    entries = [replace(entry, is_earlier=bool(entry.at and entry.at < row.created_at)) for entry in ordered]
    return [*entries, *(_name_step(step) for step in steps if not (step.begun or step.ended))]


def build_story(row: IdempotencyKey, events: Sequence[IdempotencyEvent], steps: Sequence[Step]) -> Story:
    """Return the timeline of a page: long runs of steps are folded, and steps without a time are apart."""
    entries = build_timeline(row, events, steps)
    return Story(
        fold([entry for entry in entries if entry.at is not None]),
        fold([entry for entry in entries if entry.at is None]),
    )


def load_steps(row: IdempotencyKey) -> tuple[Step, ...]:
    """Return the steps that are stored in the record."""
    try:
        found = Progress.load(row.progress).steps if row.progress else ()
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(replace(step, name=replace_surrogates(step.name)) for step in found)


def load_details(event: IdempotencyEvent) -> dict[str, Any]:
    """Return the details of an event; none if they cannot be read."""
    try:
        found = json.loads(event.details) if event.details else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def fold(entries: Sequence[Entry]) -> list[Entry]:
    """Fold the middle of each long run of steps into one entry."""
    folded: list[Entry] = []
    for tone, group in groupby(entries, key=lambda entry: entry.tone):
        run = list(group)
        if tone != "step" or len(run) <= LONGEST_RUN:
            folded += run
            continue
        hidden = tuple(run[SHOWN_OF_RUN:-SHOWN_OF_RUN])
        title = ngettext("%(count)d more step", "%(count)d more steps", len(hidden)) % {"count": len(hidden)}
        folded += [*run[:SHOWN_OF_RUN], Entry(title, "step", hidden[0].at, folded=hidden), *run[-SHOWN_OF_RUN:]]
    return folded


def _list_record_entries(row: IdempotencyKey, events: Sequence[IdempotencyEvent]) -> Iterator[Entry]:
    first = _("Accepted for a worker") if row.deferred else _("Claimed")
    request = f"{row.request_method} {row.request_path}".strip()
    yield Entry(first, "start", row.created_at, "D1" if row.deferred else "T1", row.principal, request)
    if row.last_run_at and row.last_run_at > row.created_at and not _is_told(row.last_run_at, events):
        yield Entry(_("Attempt %(number)d began") % {"number": row.attempts}, "move", row.last_run_at)
    if row.completed_at is not None:
        tone = "bad" if row.status == Status.FAILED else "good"
        known = row.response_status
        title = _("Response stored: %(status)d") % {"status": known} if known else _("Ended")
        yield Entry(title, tone, row.completed_at, notes=_describe_run(row, events))


def _is_told(began: datetime, events: Sequence[IdempotencyEvent]) -> bool:
    """True if an event tells of the attempt that began then."""
    return any(event.kind == Kind.TAKEN_OVER and abs(event.at - began) <= _AT_ONCE for event in events)


def _describe_run(row: IdempotencyKey, events: Sequence[IdempotencyEvent]) -> tuple[str, ...]:
    """Return how long the attempt took that stored the response; nothing if a verdict stored it."""
    if row.completed_at is None or row.last_run_at is None or row.status == Status.FAILED:
        return ()
    if any(event.kind in VERDICTS and event.at >= row.last_run_at for event in events):
        return ()
    return (describe_use((row.completed_at - row.last_run_at).total_seconds(), row.lease_seconds),)


def describe_use(seconds: float, lease: int) -> str:
    """Return how much of its lease an attempt used."""
    values = {"time": format_duration(seconds), "lease": format_interval(lease)}
    if seconds > lease:
        return _("after %(time)s, longer than the lease of %(lease)s") % values
    return _("after %(time)s of a %(lease)s lease") % values


def _convert_event(event: IdempotencyEvent, row: IdempotencyKey) -> Entry:
    details = load_details(event)
    title, tone = KINDS.get(event.kind, (event.kind, "move"))
    return Entry(
        title,
        tone,
        event.at,
        event.transition,
        event.actor,
        name_parts(event.reason) if event.kind == Kind.MISMATCH else event.reason,
        tuple(_list_notes(event, details, row)),
        message=replace_surrogates(str(details.get("message", ""))),
        trace=replace_surrogates(str(details.get("trace", ""))),
    )


def count_mismatches(row: IdempotencyKey, events: Sequence[IdempotencyEvent]) -> str:
    """Return how many requests with this key were different ones; empty if there was none."""
    count = sum(event.kind == Kind.MISMATCH and event.at >= row.created_at for event in events)
    if not count:
        return ""
    text = ngettext("%(count)d time", "%(count)d times", count)
    if count >= MOST_MISMATCHES:
        text = ngettext(
            "%(count)d time or more: only the last one is kept",
            "%(count)d times or more: only the last ones are kept",
            count,
        )
    return text % {"count": count}


def name_parts(stored: str) -> str:
    """Return which parts of a request differ from the one that the key belongs to."""
    if not stored:
        return _("Which part differs is not known.")
    parts = [str(PART_NAMES.get(part, part)) for part in stored.split(", ")]
    return _("Different: %(parts)s") % {"parts": get_text_list(parts, _("and"))}


def _list_notes(event: IdempotencyEvent, details: dict[str, Any], row: IdempotencyKey) -> Iterator[str]:
    if "attempt" in details:
        yield _name_attempt(details["attempt"])
    if event.kind == Kind.LEASE_EXPIRED and row.last_run_at is not None and row.last_run_at <= event.at:
        yield describe_use((event.at - row.last_run_at).total_seconds(), row.lease_seconds)
    if event.kind == Kind.IN_DOUBT and isinstance(details.get("seconds"), int | float):
        yield describe_use(details["seconds"], row.lease_seconds)
    if "try" in details:
        yield _("try %(number)s of %(all)s") % {"number": details["try"], "all": details.get("of", "?")}
    if isinstance(details.get("wait"), int | float):
        yield _("next check after %(time)s") % {"time": format_interval(details["wait"])}


def _name_attempt(number: object) -> str:
    return _("attempt %(number)s") % {"number": number}


def _list_step_entries(row: IdempotencyKey, step: Step) -> Iterator[Entry]:
    """Return what is known of a step: one entry, or two if another attempt ended it than began it."""
    begun, ended = step.begun, step.ended
    if ended is None:
        if begun is not None:
            yield replace(_name_step(step), at=_place(row, begun), notes=(_name_attempt(begun.attempt),))
        return
    if begun is not None and begun.attempt != ended.attempt:
        title = _("Step begun: %(name)s") % {"name": step.name}
        yield Entry(title, "step", _place(row, begun), "T7p", notes=(_name_attempt(begun.attempt),))
    yield replace(_name_step(step), at=_place(row, ended), notes=tuple(_list_step_notes(step, ended)))


def _list_step_notes(step: Step, ended: Moment) -> Iterator[str]:
    if ended.attempt == 0:
        yield _("settled by a verdict")
        return
    if step.begun is not None and step.begun.attempt == ended.attempt:
        yield _("took %(time)s") % {"time": format_duration((ended.after - step.begun.after) / 1000)}
    yield _name_attempt(ended.attempt)


def _name_step(step: Step) -> Entry:
    if step.state is StepState.DONE:
        return Entry(_("Step done: %(name)s") % {"name": step.name}, "step", cite="T7p")
    title = _("Step begun, its outcome is not known: %(name)s")
    return Entry(title % {"name": step.name}, "doubt", cite="T7p")


def _place(row: IdempotencyKey, moment: Moment) -> datetime:
    return row.created_at + timedelta(milliseconds=moment.after)
