"""How the console writes states, times and sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.core.effects import Effect
from django_idempotency.core.states import Status
from django_idempotency.flow.settle import Outcome
from django_idempotency.monitoring.units import format_interval, format_number

_SHORT: Final = 18

Text = str | Promise


@dataclass(frozen=True, slots=True)
class State:
    """How a status is shown: columns, filters, pages, charts and style sheets read this table."""

    label: Text
    meaning: Text
    tone: str  # a class of both style sheets; every state of one tone has one colour


STATES: Final[Mapping[Status, State]] = {  # in the order of filters and charts
    Status.DEAD_LETTER: State(
        gettext_lazy("dead letter"),
        gettext_lazy("Reconciliation gave up. An operator has to find out what happened."),
        "worst",
    ),
    Status.UNKNOWN: State(
        gettext_lazy("unknown"),
        gettext_lazy("The outcome is not known. Nothing will run until it is settled."),
        "doubt",
    ),
    Status.IN_PROGRESS: State(
        gettext_lazy("in progress"),
        gettext_lazy("An attempt holds the lease and is expected to finish."),
        "calm",
    ),
    Status.PENDING: State(
        gettext_lazy("pending"),
        gettext_lazy("Accepted and waiting for a worker."),
        "calm",
    ),
    Status.COMPLETED: State(
        gettext_lazy("completed"),
        gettext_lazy("The response is stored, and every retry gets it until it expires."),
        "good",
    ),
    Status.FAILED: State(
        gettext_lazy("failed"),
        gettext_lazy("Ended without the handler's own response; every retry gets the stored error response."),
        "bad",
    ),
    Status.FAILED_RETRYABLE: State(
        gettext_lazy("failed, can be retried"),
        gettext_lazy("It was not executed. The next request with this key runs."),
        "again",
    ),
    Status.EXPIRED: State(
        gettext_lazy("expired, kept for audit"),
        gettext_lazy("Kept for audit and never replayed. The next request with this key runs as new."),
        "quiet",
    ),
}
EFFECTS: Final[Mapping[Effect, Text]] = {  # what clients are told too
    Effect.NONE: gettext_lazy("none, and a new key is safe"),
    Effect.POSSIBLE: gettext_lazy("possible, in full or in part; a new key is not safe"),
    Effect.DONE: gettext_lazy("done; a new key would make it happen twice"),
}
PARTLY_DONE: Final = gettext_lazy(
    "A part of it may have taken effect. The next request with this key continues it, with the same downstream keys."
)
COUNTS: Final[Mapping[str, Text]] = {  # of a maintenance job; another name is shown as it is
    Outcome.LANDED: gettext_lazy("settled as succeeded"),
    Outcome.NOT_EXECUTED: gettext_lazy("settled as not executed"),
    Outcome.POSTPONED: gettext_lazy("postponed"),
    Outcome.INCONCLUSIVE: gettext_lazy("inconclusive"),
    Outcome.DEAD_LETTER: gettext_lazy("became dead letters"),
    Outcome.RESUMABLE: gettext_lazy("can be resumed"),
    Outcome.RUNNING: gettext_lazy("running"),
    Outcome.SENT: gettext_lazy("sent to a worker"),
    Outcome.OVERTAKEN: gettext_lazy("handled elsewhere meanwhile"),
    Outcome.ABSENT: gettext_lazy("gone meanwhile"),
    "completed": gettext_lazy("completed"),
    "unknown": gettext_lazy("became unknown"),
    "enqueued": gettext_lazy("sent to the workers again"),
    "expired": gettext_lazy("expired, kept for audit"),
    "abandoned": gettext_lazy("failed, because no worker began them"),
    "failed": gettext_lazy("failed"),
    "deleted": gettext_lazy("deleted"),
    "events": gettext_lazy("events deleted"),
    "counts": gettext_lazy("counts of outcomes deleted"),
    "due": gettext_lazy("due in the first batch"),
    "contended": gettext_lazy("locked, left to the next run"),
}


def badge(status: str) -> SafeString:
    """Return the status as a word; its colour only repeats what the word says."""
    state = STATES[Status(status)]
    return format_html('<span class="idem-status idem-tone-{}">{}</span>', state.tone, state.label)


def shorten_key(key: str) -> str:
    """Return the beginning and the end of a long key."""
    return key if len(key) <= _SHORT else f"{key[:10]}…{key[-6:]}"


def format_estimate(value: float) -> str:
    """Return an estimate with the two digits that are significant."""
    return f"≈ {format_number(round_estimate(value))}"


def round_estimate(value: float) -> int:
    unit = 10 ** max(len(str(round(value))) - 2, 0)
    return int(round(value / unit) * unit)


def format_age(then: datetime, now: datetime) -> str:
    """Return a moment by its distance from now."""
    if then > now:
        return _("in %s") % format_interval(then - now, units=1)
    return _("%s ago") % format_interval(now - then, units=1)


def format_size(count: int) -> str:
    """Return a number of bytes in its largest unit."""
    if count < 1024:
        return ngettext("%(count)d byte", "%(count)d bytes", count) % {"count": count}
    text, value = (_("%s KiB"), count / 1024) if count < 1024 * 1024 else (_("%s MiB"), count / 1024 / 1024)
    return text % number_format(value, decimal_pos=1)


def quote(text: Text) -> str:
    """Return a name in the quotation marks of the active language."""
    return _("“%s”") % text
