"""Series over time on the reader's clock: the chart, and the table under it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils.formats import date_format
from django.utils.timezone import get_current_timezone
from django.utils.translation import gettext as _

from django_idempotency.console.dashboard import charts
from django_idempotency.console.wording import format_estimate
from django_idempotency.monitoring.units import format_duration, format_number

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Series:
    """How often something happened in each slot, oldest first."""

    label: str
    tone: str
    values: Sequence[int]
    is_estimated: bool = False

    def format(self, value: int) -> str:
        return format_estimate(value) if self.is_estimated else format_number(value)


@dataclass(frozen=True, slots=True)
class Axis:
    """A period that ends now, in slots of one length."""

    seconds: int
    slots: int
    now: datetime

    @property
    def width(self) -> float:
        return self.seconds / self.slots

    def begins(self, slot: int) -> str:
        moment = to_local(self.now - timedelta(seconds=(self.slots - slot) * self.width))
        return date_format(moment, "D H:i" if self.seconds > DAY_SECONDS else "H:i")

    def ticks(self) -> Iterator[charts.Tick]:
        """Return full hours of a day, or the midnights of a week, on the reader's clock."""
        week = self.seconds > DAY_SECONDS
        at = to_local(self.now).replace(minute=0, second=0, microsecond=0)
        at = at.replace(hour=0 if week else at.hour - at.hour % 4)
        while (share := 1 - (self.now - at.astimezone(UTC)).total_seconds() / self.seconds) >= 0:
            yield charts.Tick(share, date_format(at, "D j" if week else "H:i"))
            at -= timedelta(days=1) if week else timedelta(hours=4)


def draw(title: str, series: Sequence[Series], axis: Axis) -> str:
    """Return a chart with one row for each series."""
    return charts.draw_panels(title, [_make_panel(each, axis) for each in series], list(axis.ticks()))


def build_rows(series: Sequence[Series], axis: Axis) -> Iterator[list[str]]:
    """Return the same numbers as a table, one row for each slot."""
    for slot in range(axis.slots):
        yield [axis.begins(slot), *(each.format(each.values[slot]) for each in series)]


def to_local(moment: datetime) -> datetime:
    """Return the moment on the reader's clock."""
    return moment.astimezone(get_current_timezone())


def _make_panel(series: Series, axis: Axis) -> charts.Panel:
    tooltips = [f"{axis.begins(slot)}: {series.format(value)}" for slot, value in enumerate(series.values)]
    if not any(series.values):
        none = _("none in the sample") if series.is_estimated else _("none")
        return charts.Panel(series.label, none, "", series.tone, series.values, tooltips)
    peak = {"peak": series.format(max(series.values)), "width": format_duration(axis.width)}
    total = _("%s total") % series.format(sum(series.values))
    more = _(" · peak %(peak)s per %(width)s") % peak
    return charts.Panel(series.label, total, more, series.tone, series.values, tooltips)
