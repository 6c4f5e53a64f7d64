"""What happened to a record, in order, from its columns and its events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.console.bodies import readable
from django_idempotency.core.audit import Kind
from django_idempotency.core.progress import Progress, StepState
from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey

Words = str | Promise

KINDS: Final[dict[str, tuple[Words, str]]] = {
    Kind.IN_DOUBT: (gettext_lazy("The attempt ended in doubt"), "doubt"),
    Kind.LEASE_EXPIRED: (gettext_lazy("The lease ran out: nobody knows what became of the attempt"), "doubt"),
    Kind.TAKEN_OVER: (gettext_lazy("Taken over and continued"), "move"),
    Kind.LANDED: (gettext_lazy("It happened"), "good"),
    Kind.CONFIRMED: (gettext_lazy("It happened"), "good"),
    Kind.STEP_LANDED: (gettext_lazy("A step that was in doubt had happened"), "good"),
    Kind.STEP_CONFIRMED: (gettext_lazy("A step that was in doubt had happened"), "good"),
    Kind.STEP_NOT_EXECUTED: (gettext_lazy("A step that was in doubt had not happened"), "good"),
    Kind.NOT_EXECUTED: (gettext_lazy("It did not happen"), "good"),
    Kind.CONFIRMED_TOO_LATE: (gettext_lazy("It happened after all, and the record had ended as failed"), "bad"),
    Kind.DEAD_LETTER: (gettext_lazy("Reconciliation gave up"), "bad"),
    Kind.DENIED: (gettext_lazy("A webhook said that it did not happen"), "doubt"),
    Kind.DISMISSED: (gettext_lazy("Settled by hand: it did not happen"), "good"),
    Kind.STEP_DISMISSED: (gettext_lazy("Settled by hand: it did not happen"), "good"),
    Kind.RESET: (gettext_lazy("Given all its tries once more"), "move"),
    Kind.ASKED: (gettext_lazy("The reconciler was asked by hand"), "move"),
    Kind.REQUEUED: (gettext_lazy("A worker was asked for again by hand"), "move"),
    Kind.EXPIRED: (gettext_lazy("Expired by hand"), "bad"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened; without a time where none was kept."""

    title: Words
    tone: str = "move"
    at: datetime | None = None
    cite: str = ""
    actor: str = ""
    reason: str = ""
    earlier: bool = False  # before the key was claimed anew


def timeline(row: IdempotencyKey, events: Iterable[IdempotencyEvent]) -> list[Entry]:
    """Oldest first."""
    dated = [*_of_record(row), *map(_of_event, events)]
    ordered = sorted(dated, key=lambda entry: entry.at or row.created_at)
    steps = list(_steps(row))
    position = _after_last_run(ordered, row)
    told = [*ordered[:position], *steps, *ordered[position:]]
    return [replace(entry, earlier=bool(entry.at and entry.at < row.created_at)) for entry in told]


def _of_record(row: IdempotencyKey) -> Iterator[Entry]:
    first = _("Accepted for a worker") if row.deferred else _("Claimed")
    request = f"{row.request_method} {row.request_path}".strip()
    yield Entry(first, "start", row.created_at, "D1" if row.deferred else "T1", row.principal, request)
    if row.last_run_at and row.last_run_at > row.created_at:
        yield Entry(_("Attempt %d began") % row.attempts, "move", row.last_run_at)
    if row.completed_at is not None:
        good = row.status != Status.FAILED
        answer = _("Answer stored: %d") % row.response_status if row.response_status else _("Ended")
        yield Entry(answer, "good" if good else "bad", row.completed_at)


def _of_event(event: IdempotencyEvent) -> Entry:
    title, tone = KINDS.get(event.kind, (event.kind, "move"))
    return Entry(title, tone, event.at, event.transition, event.actor, event.reason)


def _steps(row: IdempotencyKey) -> Iterator[Entry]:
    for step in steps(row):
        done = step.state is StepState.DONE
        title = _("Step done: %s") if done else _("Step begun, its end is not known: %s")
        yield Entry(title % step.name, "step" if done else "doubt", cite="T7p")


def steps(row: IdempotencyKey) -> tuple[Any, ...]:
    """The steps that stand in the record."""
    try:
        found = Progress.load(row.progress).steps if row.progress else ()
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(replace(step, name=readable(step.name)) for step in found)


def _after_last_run(entries: list[Entry], row: IdempotencyKey) -> int:
    began = row.created_at
    return next((number for number, entry in enumerate(entries) if entry.at and entry.at > began), len(entries))
