"""The sections of the dashboard with a chart: numbers become sentences, charts and, under each chart, a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from django.utils.functional import Promise
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.console.dashboard import charts, series
from django_idempotency.console.dashboard.links import Link, Links
from django_idempotency.console.dashboard.numbers import Figures, Period
from django_idempotency.console.dashboard.series import Axis, Series
from django_idempotency.console.wording import STATES, format_estimate, round_estimate
from django_idempotency.core.states import Status
from django_idempotency.monitoring.durations import NEWEST_RECORDS
from django_idempotency.monitoring.units import format_duration, format_number
from django_idempotency.store.dashboard import AGES

Cells = Sequence[str | Link]

OPEN: Final = [status for status in STATES if status in Status.OPEN]
FINISHED_STATES: Final = [status for status in STATES if status not in Status.OPEN]
ALWAYS: Final = (Status.COMPLETED, Status.UNKNOWN, Status.DEAD_LETTER)
OUTCOME_SERIES: Final[dict[str, tuple[str | Promise, str, bool]]] = {  # label, tone, shown even at zero
    "reserve.created": (gettext_lazy("new keys"), "calm", True),
    "completed": (gettext_lazy("responses stored"), "good", False),
    "reserve.replay": (gettext_lazy("replays"), "good", True),
    "reserve.in_progress": (gettext_lazy("still running"), "quiet", True),
    "reserve.failed_retry": (gettext_lazy("retries after a failed attempt"), "again", False),
    "reserve.expired": (gettext_lazy("expired keys"), "quiet", False),
    "reserve.key_misuse": (gettext_lazy("key reused with a different request"), "bad", True),
    "reserve.unknown": (gettext_lazy("unknown outcomes"), "doubt", True),
    "reconcile.scheduled": (gettext_lazy("became unknown"), "doubt", False),
    "reconcile.resolved": (gettext_lazy("unknown outcomes settled"), "good", False),
    "reconcile.dead_letter": (gettext_lazy("became dead letters"), "worst", False),
    "zombie_key": (gettext_lazy("expired leases"), "doubt", False),
    "lease.lost": (gettext_lazy("attempts rejected after losing their lease"), "doubt", False),
    "store.error": (gettext_lazy("database failures"), "worst", False),
}
OUTCOME_FILTERS: Final[Mapping[str, Mapping[str, str]]] = {  # the other requests leave no record of their own
    "reserve.created": {},
    "completed": {"status": Status.COMPLETED.value},
}
MOST_OPERATIONS: Final = 20  # in the chart; operations with a short lease come first, and the table has all
LONGEST_NAME: Final = 22
SECONDS: Final = (0.001, 0.1, 1.0, 10.0, 60.0, 3600.0)  # the axis of durations


@dataclass(frozen=True)
class Section:
    """One question with its chart, or with a sentence where there is nothing to draw."""

    id: str
    title: str
    note: str
    empty: str = ""
    picture: SafeString = field(default_factory=SafeString)
    head: Sequence[str] = ()
    rows: Sequence[Cells] = ()
    wide: bool = False
    bare: bool = False  # a table without a chart


def build_charts(found: Figures, links: Links) -> Iterator[Section]:
    yield _build_states(found, links, "open", _("Open"), _("Nothing is open: every record is finished."), OPEN)
    yield _build_states(found, links, "finished", _("Finished"), _("No response is stored."), FINISHED_STATES)
    yield _build_doubts(found, links)
    yield _build_durations(found, links)


def build_charts_over_time(found: Figures, period: Period, links: Links) -> Iterator[Section]:
    axis = Axis(period.seconds, period.slots, links.now)
    yield _build_created(found, axis, links)
    yield _build_outcomes(found, axis, links)


def _build_states(
    found: Figures, links: Links, name: str, title: str, empty: str, statuses: Sequence[Status]
) -> Section:
    is_estimated = name == "finished" and not found.exact
    note = _("Estimated from a sample, because there are many.") if is_estimated else ""
    if name == "open" and found.overdue:
        note = ngettext(
            "%s lease has expired and waits for the sweeper.",
            "%s leases have expired and wait for the sweeper.",
            found.overdue,
        ) % format_number(found.overdue)
    if not any(found.states[status] for status in statuses):
        return Section(name, title, note, _("No key has been used yet.") if found.is_empty else empty)
    rows: list[charts.Bar] = []
    table: list[Cells] = []
    for status in statuses:
        count, url = _format_count(found, status, is_estimated), links.list(status=status.value)
        label, tone = str(STATES[status].label), STATES[status].tone
        rows.append(charts.Bar(label, count, [charts.BarPart(tone, found.states[status], url)], url))
        table.append([label, Link(count, url)])
    return Section(name, title, note, "", _mark_safe(charts.draw_bars(title, rows)), [_("state"), _("keys")], table)


def _format_count(found: Figures, status: Status, is_estimated: bool) -> str:
    count = found.states[status]
    if status in found.at_least:
        return _("more than %s") % format_number(round_estimate(count))
    return format_estimate(count) if is_estimated else format_number(count)


def _build_doubts(found: Figures, links: Links) -> Section:
    title = _("Unknown outcomes by age")
    note = _("The time since their keys were first claimed.")
    if found.oldest_doubt is None:
        return Section("doubts", title, note, _("No outcome is unknown."))
    if found.at_least & Status.IN_DOUBT:
        note += " " + _("Estimated from a sample, because there are many.")
    statuses = (Status.UNKNOWN, Status.DEAD_LETTER)
    shown = [(status, STATES[status].tone, list(links.ages(status))) for status in statuses]
    rows: list[charts.Bar] = []
    table: list[Cells] = []
    for number, label in enumerate(_label_ages()):
        parts = [charts.BarPart(tone, found.doubts[status][number], urls[number]) for status, tone, urls in shown]
        texts = [_format_doubts(found, status, number) for status in statuses]
        value = " + ".join(text for text, part in zip(texts, parts, strict=True) if part.length) or "0"
        rows.append(charts.Bar(label, value, parts))
        cells = [Link(text, part.url) if part.length else text for text, part in zip(texts, parts, strict=True)]
        table.append([label, *cells])
    labels = [str(STATES[status].label) for status in statuses]
    legend = [(tone, label) for (_status, tone, _urls), label in zip(shown, labels, strict=True)]
    picture = charts.draw_bars(title, rows, legend)
    return Section("doubts", title, note, "", _mark_safe(picture), [_("age"), *labels], table)


def _format_doubts(found: Figures, status: Status, number: int) -> str:
    count = found.doubts[status][number]
    return format_estimate(count) if count and status in found.at_least else format_number(count)


def _label_ages() -> Iterator[str]:
    yield _("under %s") % format_duration(AGES[0])
    for low, high in pairwise(AGES):
        yield _("%(low)s to %(high)s") % {"low": format_duration(low), "high": format_duration(high)}
    yield _("older than %s") % format_duration(AGES[-1])


def _build_durations(found: Figures, links: Links) -> Section:
    title = _("Handler duration compared with the lease")
    note = _("The newest %(count)s keys. The p99 should end before the shaded part, the last two thirds of the lease.")
    note %= {"count": format_number(NEWEST_RECORDS)}
    known = {name: each for name, each in found.operations.items() if each.median is not None}
    if not known:
        return Section("durations", title, note, _("No run has been completed yet."))
    head = [_("operation"), _("runs"), _("median"), _("p99"), _("lease")]
    rows: list[charts.Range] = []
    table: list[Cells] = []
    for name, each in sorted(known.items(), key=lambda item: (item[1].has_room, item[0])):
        median, p99, url = each.median or 0.0, each.p99, links.list(operation=name, status=Status.COMPLETED.value)
        values = [format_duration(median), "-" if p99 is None else format_duration(p99), format_duration(each.lease)]
        text = " · ".join(values)
        rows.append(charts.Range(_shorten(name or "-"), text, median, p99, each.lease, not each.has_room, url))
        table.append([Link(name or "-", url), format_number(len(each.seconds)), *values])
    ticks = [charts.Tick(seconds, format_duration(seconds)) for seconds in SECONDS]
    picture = charts.draw_ranges(title, rows[:MOST_OPERATIONS], ticks, (_("median"), _("p99"), _("lease")))
    return Section("durations", title, note, "", _mark_safe(picture), head, table)


def _shorten(name: str) -> str:
    """Return the end of a long name, which tells most; the table has all of it."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def _build_created(found: Figures, axis: Axis, links: Links) -> Section:
    title = _("Keys by creation time and current state")
    note = _("Each row has its own scale. Deleted keys are not counted.")
    if not found.exact_created:
        note += " " + _("Numbers marked with ≈ are estimated from a sample.")
    estimated = found.at_least if found.exact_created else {*FINISHED_STATES, *found.at_least}
    shown = [
        Series(str(state.label), state.tone, found.created[status], status in estimated, {"status": status.value})
        for status, state in STATES.items()
        if any(found.created[status]) or status in ALWAYS
    ]
    if not any(any(each.values) for each in shown):
        return Section("created", title, note, _("No key was created in this period."), wide=True)
    return _build_section_over_time("created", title, note, shown, axis, links)


def _build_outcomes(found: Figures, axis: Axis, links: Links) -> Section:
    title = _("Request outcomes")
    note = _("Each row has its own scale. Every process counts and writes its counts every ten seconds.")
    if found.outcomes is None:
        off = _('Outcomes are not counted. Set IDEMPOTENCY["COUNT_OUTCOMES"] to True to see them here.')
        return Section("outcomes", title, "", off, wide=True)
    if not found.outcomes:
        return Section("outcomes", title, note, _("Nothing was counted in this period."), wide=True)
    zero = [0] * axis.slots
    shown = [
        Series(str(label), tone, found.outcomes.get(name, zero), filters=OUTCOME_FILTERS.get(name))
        for name, (label, tone, always) in OUTCOME_SERIES.items()
        if always or name in found.outcomes
    ]
    note += " " + _("A number without a link counts requests, which leave no record of their own.")
    return _build_section_over_time("outcomes", title, note, shown, axis, links)


def _build_section_over_time(
    name: str, title: str, note: str, shown: Sequence[Series], axis: Axis, links: Links
) -> Section:
    head, table = [_("start"), *(each.label for each in shown)], list(series.build_rows(shown, axis, links))
    picture = _mark_safe(series.draw(title, shown, axis, links))
    return Section(name, title, note, "", picture, head, table, wide=True)


def _mark_safe(picture: str) -> SafeString:
    return mark_safe(picture)  # noqa: S308 - made by an XML writer, which escapes every word
