"""What happened to a record, in order, from its columns and its events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.console.actions import ACTIONS
from django_idempotency.console.bodies import replace_surrogates
from django_idempotency.core.audit import Kind
from django_idempotency.core.progress import Progress, StepState
from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey

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
    Kind.NOT_EXECUTED: (gettext_lazy("Settled: it did not happen"), "good"),
    Kind.CONFIRMED_TOO_LATE: (gettext_lazy("It happened after all, but the record had ended as failed"), "bad"),
    Kind.DEAD_LETTER: (gettext_lazy("Reconciliation gave up"), "bad"),
    Kind.MISMATCH: (gettext_lazy("The key was sent with a different request"), "bad"),
    Kind.DENIED: (gettext_lazy("A webhook reported that it did not happen"), "doubt"),
    **{each.trace.kind: (each.trace.title, each.trace.tone) for each in ACTIONS if each.trace is not None},
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened. Steps have no time."""

    title: Text
    tone: str = "move"
    at: datetime | None = None
    cite: str = ""
    actor: str = ""
    reason: str = ""
    is_earlier: bool = False  # before the key was claimed again


def build_timeline(row: IdempotencyKey, events: Iterable[IdempotencyEvent]) -> list[Entry]:
    """Return what happened, oldest first."""
    dated = [*_list_record_entries(row), *map(_convert_event, events)]
    ordered = sorted(dated, key=lambda entry: entry.at or row.created_at)
    position = _find_steps_place(ordered, row)
    entries = [*ordered[:position], *_list_step_entries(row), *ordered[position:]]
    return [replace(entry, is_earlier=bool(entry.at and entry.at < row.created_at)) for entry in entries]


def _list_record_entries(row: IdempotencyKey) -> Iterator[Entry]:
    first = _("Accepted for a worker") if row.deferred else _("Claimed")
    request = f"{row.request_method} {row.request_path}".strip()
    yield Entry(first, "start", row.created_at, "D1" if row.deferred else "T1", row.principal, request)
    if row.last_run_at and row.last_run_at > row.created_at:
        yield Entry(_("Attempt %d began") % row.attempts, "move", row.last_run_at)
    if row.completed_at is not None:
        tone = "bad" if row.status == Status.FAILED else "good"
        title = _("Response stored: %d") % row.response_status if row.response_status else _("Ended")
        yield Entry(title, tone, row.completed_at)


def _convert_event(event: IdempotencyEvent) -> Entry:
    title, tone = KINDS.get(event.kind, (event.kind, "move"))
    return Entry(title, tone, event.at, event.transition, event.actor, event.reason)


def _list_step_entries(row: IdempotencyKey) -> Iterator[Entry]:
    for step in load_steps(row):
        is_done = step.state is StepState.DONE
        title = _("Step done: %s") if is_done else _("Step begun, its outcome is not known: %s")
        yield Entry(title % step.name, "step" if is_done else "doubt", cite="T7p")


def load_steps(row: IdempotencyKey) -> tuple[Any, ...]:
    """Return the steps that are stored in the record."""
    try:
        found = Progress.load(row.progress).steps if row.progress else ()
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(replace(step, name=replace_surrogates(step.name)) for step in found)


def _find_steps_place(entries: list[Entry], row: IdempotencyKey) -> int:
    """Return the position of the first entry after the claim: steps are shown before it."""
    began = row.created_at
    return next((number for number, entry in enumerate(entries) if entry.at and entry.at > began), len(entries))
