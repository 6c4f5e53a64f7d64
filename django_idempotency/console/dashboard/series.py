"""Series over time in the words of the reader: the picture, and the table under it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils.formats import date_format
from django.utils.timezone import get_current_timezone
from django.utils.translation import gettext as _

from django_idempotency.console.dashboard import charts
from django_idempotency.console.wording import number, span

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Series:
    """How often, in each slot; oldest first."""

    label: str
    kind: str
    values: Sequence[int]
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """So many seconds back from now, in slots of one length."""

    seconds: int
    slots: int
    now: datetime

    @property
    def width(self) -> float:
        return self.seconds / self.slots

    def begins(self, slot: int) -> str:
        moment = local(self.now - timedelta(seconds=(self.slots - slot) * self.width))
        return date_format(moment, "D H:i" if self.seconds > DAY_SECONDS else "H:i")

    def ticks(self) -> Iterator[charts.Tick]:
        """The full hours of a day, or the midnights of a week, on the reader's clock."""
        week = self.seconds > DAY_SECONDS
        at = local(self.now).replace(minute=0, second=0, microsecond=0)
        at = at.replace(hour=0 if week else at.hour - at.hour % 4)
        while (share := 1 - (self.now - at.astimezone(UTC)).total_seconds() / self.seconds) >= 0:
            yield charts.Tick(share, date_format(at, "D j" if week else "H:i"))
            at -= timedelta(days=1) if week else timedelta(hours=4)


def drawn(title: str, series: Sequence[Series], axis: Axis) -> str:
    """One small picture for each series."""
    return charts.panels(title, [_panel(each, axis) for each in series], list(axis.ticks()))


def rows(series: Sequence[Series], axis: Axis) -> Iterator[list[str]]:
    """The same, a line for each slot."""
    for slot in range(axis.slots):
        yield [axis.begins(slot), *(number(each.values[slot], each.estimated) for each in series)]


def local(moment: datetime) -> datetime:
    """On the reader's clock."""
    return moment.astimezone(get_current_timezone())


def _panel(series: Series, axis: Axis) -> charts.Panel:
    words = [f"{axis.begins(slot)}: {number(value, series.estimated)}" for slot, value in enumerate(series.values)]
    if not any(series.values):
        none = _("none in the sample") if series.estimated else _("none")
        return charts.Panel(series.label, none, "", series.kind, series.values, words)
    most = {"most": number(max(series.values), series.estimated), "width": span(axis.width)}
    said = number(sum(series.values), series.estimated)
    return charts.Panel(
        series.label, said, _(", at most %(most)s in %(width)s") % most, series.kind, series.values, words
    )
