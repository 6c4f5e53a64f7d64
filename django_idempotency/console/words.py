"""How the console says times, states and names."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.core.states import Status
from django_idempotency.words import STATES

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
