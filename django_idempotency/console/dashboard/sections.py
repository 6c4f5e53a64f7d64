"""The sections of the dashboard: numbers become sentences, charts and, under each chart, a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Final

from django.utils.functional import Promise
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.console.dashboard import charts, endpoints, series
from django_idempotency.console.dashboard.numbers import AGES, Figures, Period
from django_idempotency.console.dashboard.series import Axis, Series
from django_idempotency.console.wording import STATES, format_estimate, round_estimate
from django_idempotency.core.states import Status
from django_idempotency.monitoring.jobs import BY_NAME, SCHEDULED
from django_idempotency.monitoring.rules import JobRun
from django_idempotency.monitoring.units import format_duration, format_interval, format_number

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
    rows: Sequence[Sequence[str]] = ()
    wide: bool = False
    bare: bool = False  # a table without a chart


def build_sections(found: Figures, period: Period, now: datetime) -> Iterator[Section]:
    yield _build_states(found, "open", _("Open"), _("Nothing is open: every record is finished."), OPEN)
    yield _build_states(found, "finished", _("Finished"), _("No response is stored."), FINISHED_STATES)
    yield _build_doubts(found)
    yield _build_durations(found)
    yield _build_created(found, period, now)
    yield _build_outcomes(found, period, now)
    yield _build_jobs(found)
    yield _build_endpoints(found)


def _build_states(found: Figures, name: str, title: str, empty: str, statuses: Sequence[Status]) -> Section:
    is_estimated = name == "finished" and not found.exact
    note = _("Estimated from a sample, because there are many.") if is_estimated else ""
    if name == "open" and found.overdue:
        note = ngettext(
            "%s lease has expired and waits for the sweeper.",
            "%s leases have expired and wait for the sweeper.",
            found.overdue,
        ) % format_number(found.overdue)
    rows = [
        charts.Bar(
            str(STATES[status].label),
            _format_count(found, status, is_estimated),
            [(STATES[status].tone, found.states[status])],
        )
        for status in statuses
    ]
    if not any(found.states[status] for status in statuses):
        return Section(name, title, note, empty)
    table = [[row.label, row.value] for row in rows]
    return Section(name, title, note, "", _mark_safe(charts.draw_bars(title, rows)), [_("state"), _("keys")], table)


def _format_count(found: Figures, status: Status, is_estimated: bool) -> str:
    count = found.states[status]
    if status in found.at_least:
        return _("more than %s") % format_number(round_estimate(count))
    return format_estimate(count) if is_estimated else format_number(count)


def _build_doubts(found: Figures) -> Section:
    title = _("Unknown outcomes by age")
    note = _("The time since their keys were first claimed.")
    if found.oldest_doubt is None:
        return Section("doubts", title, note, _("No outcome is unknown."))
    unknown, dead = found.doubts[Status.UNKNOWN], found.doubts[Status.DEAD_LETTER]
    head = [_("age"), str(STATES[Status.UNKNOWN].label), str(STATES[Status.DEAD_LETTER].label)]
    rows = [
        charts.Bar(label, _describe_doubts(waiting, given_up), [("doubt", waiting), ("worst", given_up)])
        for label, waiting, given_up in zip(_label_ages(), unknown, dead, strict=True)
    ]
    table = [
        [row.label, format_number(waiting), format_number(given_up)]
        for row, waiting, given_up in zip(rows, unknown, dead, strict=True)
    ]
    return Section("doubts", title, note, "", _mark_safe(charts.draw_bars(title, rows)), head, table)


def _describe_doubts(unknown: int, dead: int) -> str:
    if not dead:
        return format_number(unknown)
    letters = ngettext("%s dead letter", "%s dead letters", dead) % format_number(dead)
    return letters if not unknown else f"{format_number(unknown)} + {letters}"


def _label_ages() -> Iterator[str]:
    yield _("under %s") % format_duration(AGES[0])
    for low, high in pairwise(AGES):
        yield _("%(low)s to %(high)s") % {"low": format_duration(low), "high": format_duration(high)}
    yield _("older than %s") % format_duration(AGES[-1])


def _build_durations(found: Figures) -> Section:
    title = _("Handler duration compared with the lease")
    note = _("The newest 5,000 keys. The p99 should end before the shaded part, the last two thirds of the lease.")
    known = {name: each for name, each in found.operations.items() if each.median is not None}
    if not known:
        return Section("durations", title, note, _("No run has been completed yet."))
    head = [_("operation"), _("runs"), _("median"), _("p99"), _("lease")]
    rows, table = [], []
    for name, each in sorted(known.items(), key=lambda item: (item[1].has_room, item[0])):
        median, p99 = each.median or 0.0, each.p99
        values = [format_duration(median), "-" if p99 is None else format_duration(p99), format_duration(each.lease)]
        rows.append(charts.Range(_shorten(name or "-"), " · ".join(values), median, p99, each.lease, not each.has_room))
        table.append([name or "-", format_number(len(each.seconds)), *values])
    ticks = [charts.Tick(seconds, format_duration(seconds)) for seconds in SECONDS]
    picture = charts.draw_ranges(title, rows[:MOST_OPERATIONS], ticks, (_("median"), _("p99"), _("lease")))
    return Section("durations", title, note, "", _mark_safe(picture), head, table)


def _shorten(name: str) -> str:
    """Return the end of a long name, which tells most; the table has all of it."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def _build_created(found: Figures, period: Period, now: datetime) -> Section:
    title = _("Keys by creation time and current state")
    note = _("Each row has its own scale. Deleted keys are not counted.")
    if not found.exact:
        note += " " + _("Finished ones are estimated from a sample.")
    shown = [
        Series(str(state.label), state.tone, found.created[status], status in FINISHED_STATES and not found.exact)
        for status, state in STATES.items()
        if any(found.created[status]) or status in ALWAYS
    ]
    if not any(any(each.values) for each in shown):
        return Section("created", title, note, _("No key was created in this period."), wide=True)
    return _build_section_over_time("created", title, note, shown, Axis(period.seconds, period.slots, now))


def _build_outcomes(found: Figures, period: Period, now: datetime) -> Section:
    title = _("Request outcomes")
    note = _("Each row has its own scale. Every process counts and writes its counts every ten seconds.")
    if found.outcomes is None:
        off = _('Outcomes are not counted. Set IDEMPOTENCY["COUNT_OUTCOMES"] to True to see them here.')
        return Section("outcomes", title, "", off, wide=True)
    if not found.outcomes:
        return Section("outcomes", title, note, _("Nothing was counted in this period."), wide=True)
    zero = [0] * period.slots
    shown = [
        Series(str(label), tone, found.outcomes.get(name, zero))
        for name, (label, tone, always) in OUTCOME_SERIES.items()
        if always or name in found.outcomes
    ]
    return _build_section_over_time("outcomes", title, note, shown, Axis(period.seconds, period.slots, now))


def _build_section_over_time(name: str, title: str, note: str, shown: Sequence[Series], axis: Axis) -> Section:
    head, table = [_("from"), *(each.label for each in shown)], list(series.build_rows(shown, axis))
    return Section(name, title, note, "", _mark_safe(series.draw(title, shown, axis)), head, table, wide=True)


def _build_jobs(found: Figures) -> Section:
    note = _("When each one last ran to its end, and what it did.")
    names = [*(job.name for job in SCHEDULED), *found.runs]
    rows = [_describe_run(name, found.runs.get(name)) for name in dict.fromkeys(names)]
    head = [_("job"), _("ended"), _("result")]
    return Section("jobs", _("Maintenance jobs"), note, "", head=head, rows=rows, wide=True, bare=True)


def _describe_run(name: str, run: JobRun | None) -> list[str]:
    label = f"{name}: {BY_NAME[name].purpose}" if name in BY_NAME else name
    if run is None:
        return [label, _("never"), ""]
    ended = _("never") if run.finished_ago is None else _("%s ago") % format_interval(run.finished_ago, units=1)
    return [label, ended, run.error or _describe_counts(run.counts)]


def _describe_counts(counts: Mapping[str, int]) -> str:
    done = {name.replace("_", " "): count for name, count in counts.items() if count}
    return ", ".join(f"{name} {format_number(count)}" for name, count in done.items()) or _("nothing to do")


def _build_endpoints(found: Figures) -> Section:
    listed = endpoints.list_by_protection()
    note = endpoints.count_by_protection(listed)
    rows = [endpoints.build_row(entry, found) for entry in listed]
    empty = "" if rows else _("No endpoint takes POST or PATCH.")
    return Section("endpoints", _("Endpoints"), note, empty, head=endpoints.head_of_endpoints(), rows=rows, wide=True)


def _mark_safe(picture: str) -> SafeString:
    return mark_safe(picture)  # noqa: S308 - made by an XML writer, which escapes every word
