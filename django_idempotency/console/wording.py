"""How the console writes statuses, numbers, lengths of time and sizes."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.core.states import Status

STATES: Final[dict[Status, str | Promise]] = {
    Status.DEAD_LETTER: gettext_lazy("dead letter"),
    Status.UNKNOWN: gettext_lazy("unknown"),
    Status.IN_PROGRESS: gettext_lazy("in progress"),
    Status.PENDING: gettext_lazy("pending"),
    Status.COMPLETED: gettext_lazy("completed"),
    Status.FAILED: gettext_lazy("failed"),
    Status.FAILED_RETRYABLE: gettext_lazy("failed, may be tried again"),
    Status.EXPIRED: gettext_lazy("expired, kept for audit"),
}

_UNITS: Final[tuple[tuple[float, float, str | Promise], ...]] = (  # in seconds; used from so many seconds on
    (86_400.0, 172_800.0, gettext_lazy("%s days")),
    (3600.0, 3600.0, gettext_lazy("%s h")),
    (60.0, 60.0, gettext_lazy("%s min")),
    (1.0, 1.0, gettext_lazy("%s s")),
    (0.001, 0.0, gettext_lazy("%s ms")),
)


def number(value: float, estimated: bool = False) -> str:
    """An estimate is given with two figures that mean something."""
    if not estimated:
        return _grouped(round(value))
    unit = 10 ** max(len(str(round(value))) - 2, 0)
    return f"≈ {_grouped(round(value / unit) * unit)}"


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
    seconds = max(seconds, 0.0)  # what another clock wrote may lie ahead
    length, unit = next((seconds / each, unit) for each, least, unit in _UNITS if seconds >= least)
    places = 1 if length < 9.95 and round(length, 1) != round(length) else 0
    return str(unit) % number_format(round(length, places), decimal_pos=places)


def _grouped(value: int) -> str:
    return number_format(value, force_grouping=True)


MEANINGS: Final[dict[str, Promise]] = {
    Status.PENDING: gettext_lazy("Accepted and waiting for a worker."),
    Status.IN_PROGRESS: gettext_lazy("An attempt holds the lease and is expected to finish it."),
    Status.COMPLETED: gettext_lazy("The answer is stored and is given to every retry until it expires."),
    Status.FAILED: gettext_lazy("Ended without the handler's own answer; the stored error is given to every retry."),
    Status.FAILED_RETRYABLE: gettext_lazy("Proven that nothing happened; the next request with this key runs."),
    Status.UNKNOWN: gettext_lazy("Nobody knows whether the effect happened; nothing runs until somebody finds out."),
    Status.DEAD_LETTER: gettext_lazy("Reconciliation gave up: a person has to find out what happened."),
    Status.EXPIRED: gettext_lazy("Kept for audit and never replayed; the next request with this key runs as new."),
}

_SHORT: Final = 18


def badge(status: str) -> SafeString:
    """The status as a word; its colour says the same once more."""
    return format_html('<span class="idem-status idem-{}">{}</span>', status, STATES.get(Status(status), status))


def short(key: str) -> str:
    """The beginning and the end of a long key."""
    return key if len(key) <= _SHORT else f"{key[:10]}…{key[-6:]}"


def duration(length: timedelta, units: int = 2) -> str:
    """The largest units: people compare, they do not calculate."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 1:
        return _("under 1 s")
    return " ".join(list(_units(seconds))[:units])


def _units(seconds: int) -> Iterator[str]:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = (
        (days, _("%d d")),
        (hours, _("%d h")),
        (minutes, _("%d min")),
        (rest, _("%d s")),
    )
    first = next(position for position, (number, _unit) in enumerate(parts) if number)
    yield from (unit % number for number, unit in parts[first : first + 2] if number)


def ago(then: datetime, now: datetime) -> str:
    if then > now:
        return _("in %s") % duration(then - now, units=1)
    return _("%s ago") % duration(now - then, units=1)


def size(count: int) -> str:
    """A number of bytes."""
    if count < 1024:
        return _("%d bytes") % count
    return _("%.1f KiB") % (count / 1024) if count < 1024 * 1024 else _("%.1f MiB") % (count / 1024 / 1024)
