"""Series over time on the reader's clock: the chart, and the table under it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.utils.formats import date_format
from django.utils.timezone import get_current_timezone
from django.utils.translation import gettext as _

from django_idempotency.console.dashboard import charts
from django_idempotency.console.dashboard.links import Link, Links
from django_idempotency.console.wording import format_estimate
from django_idempotency.monitoring.units import format_duration, format_number

DAY_SECONDS: Final = 86_400
STEPS: Final = (  # for periods up to so many seconds: how a time on the axis is written, and the distance of two
    (3600, "H:i", timedelta(minutes=10)),
    (DAY_SECONDS, "H:i", timedelta(hours=4)),
    (7 * DAY_SECONDS, "D j", timedelta(days=1)),
    (31 * DAY_SECONDS, "j M", timedelta(days=5)),
)


@dataclass(frozen=True, slots=True)
class Series:
    """How often something happened in each slot, oldest first."""

    label: str
    tone: str
    values: Sequence[int]
    is_estimated: bool = False
    filters: Mapping[str, str] | None = None  # of the record list; None: no record is behind the numbers

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

    def ago(self, slot: int) -> float:
        """Return how many seconds ago a slot begins, the oldest being 0."""
        return (self.slots - slot) * self.width

    def begins(self, slot: int) -> str:
        moment = to_local(self.now - timedelta(seconds=self.ago(slot)))
        if self.width >= DAY_SECONDS:
            return date_format(moment, "MONTH_DAY_FORMAT")
        return date_format(moment, "D H:i" if self.seconds > DAY_SECONDS else "H:i")

    def ticks(self) -> Iterator[charts.Tick]:
        """Return round times on the reader's clock: ten minutes of an hour, full hours of a day, midnights."""
        text, step = next((text, step) for seconds, text, step in STEPS if self.seconds <= seconds)
        at = to_local(self.now).replace(second=0, microsecond=0)
        since_midnight = timedelta(hours=at.hour, minutes=at.minute)
        at -= since_midnight % step if step < timedelta(days=1) else since_midnight
        while (share := 1 - (self.now - at.astimezone(UTC)).total_seconds() / self.seconds) >= 0:
            yield charts.Tick(share, date_format(at, text))
            at -= step


def draw(title: str, series: Sequence[Series], axis: Axis, links: Links) -> str:
    """Return a chart with one row for each series."""
    return charts.draw_panels(title, [_make_panel(each, axis, links) for each in series], list(axis.ticks()))


def build_rows(series: Sequence[Series], axis: Axis, links: Links) -> Iterator[list[str | Link]]:
    """Return the same numbers as a table, one row for each slot."""
    for slot in range(axis.slots):
        yield [axis.begins(slot), *(_build_cell(each, axis, links, slot) for each in series)]


def _build_cell(series: Series, axis: Axis, links: Links, slot: int) -> str | Link:
    text, url = series.format(series.values[slot]), _find_records(series, axis, links, slot)
    return Link(text, url) if url and series.values[slot] else text


def _find_records(series: Series, axis: Axis, links: Links, slot: int) -> str:
    if series.filters is None:
        return ""
    return links.between(axis.ago(slot), axis.ago(slot + 1), **series.filters)


def to_local(moment: datetime) -> datetime:
    """Return the moment on the reader's clock."""
    return moment.astimezone(get_current_timezone())


def _make_panel(series: Series, axis: Axis, links: Links) -> charts.Panel:
    tooltips = [f"{axis.begins(slot)}: {series.format(value)}" for slot, value in enumerate(series.values)]
    if not any(series.values):
        none = _("none in the sample") if series.is_estimated else _("none")
        return charts.Panel(series.label, none, "", series.tone, series.values, tooltips)
    urls = [_find_records(series, axis, links, slot) for slot in range(axis.slots)]
    url = "" if series.filters is None else links.in_period(**series.filters)
    peak = {"peak": series.format(max(series.values)), "width": format_duration(axis.width)}
    total = _("%s total") % series.format(sum(series.values))
    more = " · " + _("peak %(peak)s per %(width)s") % peak
    return charts.Panel(series.label, total, more, series.tone, series.values, tooltips, url, urls, peak["peak"])
