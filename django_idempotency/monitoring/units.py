"""Numbers and lengths of time as people read them, in the active language."""

from datetime import timedelta
from typing import Final

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

_UNITS: Final[tuple[tuple[int, str | Promise], ...]] = (  # in seconds
    (86_400, _("%s d")),
    (3600, _("%s h")),
    (60, _("%s min")),
    (1, _("%s s")),
)


def format_number(value: float) -> str:
    """Return a whole number with its digits in groups."""
    return number_format(round(value), force_grouping=True)


def format_duration(length: timedelta | float, units: int = 2) -> str:
    """Return the largest units of a measured length of time; a negative one counts as 0.

    Below ten seconds one decimal is shown where there is one.
    """
    seconds = _to_seconds(length)
    if 0 < seconds < 0.9995:
        return _with_decimal(seconds * 1000, _("%s ms"))
    if seconds < 10:
        return _with_decimal(seconds, _("%s s"))
    rest = round(seconds)
    parts: list[tuple[int, str | Promise]] = []
    for unit, text in _UNITS:
        count, rest = divmod(rest, unit)
        if count or parts:
            parts.append((count, text))
    return " ".join(str(text) % format_number(count) for count, text in parts[:units] if count)


def format_interval(length: timedelta | float, units: int = 2) -> str:
    """Return the time between two moments, in whole seconds."""
    return format_duration(round(_to_seconds(length)), units)


def _to_seconds(length: timedelta | float) -> float:
    return max(length.total_seconds() if isinstance(length, timedelta) else length, 0.0)


def _with_decimal(value: float, text: str | Promise) -> str:
    places = 1 if value < 9.95 and round(value, 1) != round(value) else 0
    return str(text) % number_format(round(value, places), decimal_pos=places)
