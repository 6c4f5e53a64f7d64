"""How the admin says numbers, times and states to a person."""

from typing import Final

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_idempotency.core.states import Status

STATES: Final[dict[Status, str | Promise]] = {
    Status.DEAD_LETTER: _("dead letter"),
    Status.UNKNOWN: _("unknown"),
    Status.IN_PROGRESS: _("in progress"),
    Status.PENDING: _("pending"),
    Status.COMPLETED: _("completed"),
    Status.FAILED: _("failed"),
    Status.FAILED_RETRYABLE: _("failed, may be tried again"),
    Status.EXPIRED: _("expired, kept for audit"),
}

_UNITS: Final[tuple[tuple[float, float, str | Promise], ...]] = (  # in seconds; used from so many seconds on
    (86_400.0, 172_800.0, _("%s days")),
    (3600.0, 3600.0, _("%s h")),
    (60.0, 60.0, _("%s min")),
    (1.0, 1.0, _("%s s")),
    (0.001, 0.0, _("%s ms")),
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
