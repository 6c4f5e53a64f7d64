"""Numbers and lengths of time as people read them, in the active language."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

_UNITS: Final[tuple[tuple[int, str | Promise], ...]] = (  # in seconds
    (86_400, _("%s d")),
    (3600, _("%s h")),
    (60, _("%s min")),
    (1, _("%s s")),
)
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_TYPED: Final = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d)(?![a-z])")


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


def format_clock(then: datetime) -> str:
    """Return a time in the zone of the settings."""
    local = timezone.localtime(then) if timezone.is_aware(then) else then
    return f"{local:%Y-%m-%d %H:%M:%S}"


def format_moment(then: datetime) -> str:
    """Return a time as RFC 3339 in UTC. Without `USE_TZ` times are in the zone of the settings."""
    aware = timezone.make_aware(then) if timezone.is_naive(then) else then
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_duration(text: str) -> timedelta:
    """Return a length of time that a person typed: `90s`, `5 min`, `1h30m`, `2d`. ValueError if it is none."""
    typed = text.replace(" ", "")
    parts = _TYPED.findall(typed)
    if not parts or "".join(number + unit for number, unit in parts) != typed:
        raise ValueError(f"{text!r} is not a length of time: give one such as 90s, 5min, 1h30m or 2d.")
    try:
        return sum((timedelta(seconds=float(number) * _SECONDS[unit]) for number, unit in parts), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any calendar.") from None
