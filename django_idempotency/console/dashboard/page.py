"""The page of the dashboard: figures become words, pictures and, under each picture, a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.console.dashboard import charts, series
from django_idempotency.console.dashboard.complaints import complaints, said_of_duty
from django_idempotency.console.dashboard.numbers import AGES, PERIODS, Figures, Period, figures
from django_idempotency.console.dashboard.series import Axis, Series, drawn
from django_idempotency.console.dashboard.series import rows as rows_of
from django_idempotency.console.wording import STATES, number, span
from django_idempotency.core.states import Status

OPENED: Final = [status for status in STATES if status in Status.OPEN]
ENDED: Final = [status for status in STATES if status not in Status.OPEN]
KINDS: Final = {  # the colours of the record list
    Status.DEAD_LETTER: "worst",
    Status.UNKNOWN: "doubt",
    Status.IN_PROGRESS: "calm",
    Status.PENDING: "calm",
    Status.COMPLETED: "good",
    Status.FAILED: "bad",
    Status.FAILED_RETRYABLE: "again",
    Status.EXPIRED: "quiet",
}
ALWAYS: Final = (Status.COMPLETED, Status.UNKNOWN, Status.DEAD_LETTER)
OUTCOMES: Final[dict[str, tuple[str | Promise, str, bool]]] = {  # what it is called, its colour, shown even at zero
    "reserve.created": (gettext_lazy("new keys"), "calm", True),
    "completed": (gettext_lazy("answers stored"), "good", False),
    "reserve.replay": (gettext_lazy("replays"), "good", True),
    "reserve.in_progress": (gettext_lazy("still running"), "quiet", True),
    "reserve.failed_retry": (gettext_lazy("tried again"), "again", False),
    "reserve.expired": (gettext_lazy("expired keys"), "quiet", False),
    "reserve.key_misuse": (gettext_lazy("misused keys"), "bad", True),
    "reserve.unknown": (gettext_lazy("unknown outcomes"), "doubt", True),
    "reconcile.scheduled": (gettext_lazy("became unknown"), "doubt", False),
    "reconcile.resolved": (gettext_lazy("doubts settled"), "good", False),
    "reconcile.dead_letter": (gettext_lazy("doubts given up"), "worst", False),
    "zombie_key": (gettext_lazy("leases that ran out"), "doubt", False),
    "lease.lost": (gettext_lazy("attempts fenced off"), "doubt", False),
    "store.error": (gettext_lazy("store failures"), "worst", False),
}
PERIOD_WORDS: Final = {"day": gettext_lazy("last 24 hours"), "week": gettext_lazy("last 7 days")}
MOST_OPERATIONS: Final = 20  # in the picture; those with a short lease come first, and the table has all
MOST_LETTERS: Final = 22
SECONDS: Final = (0.001, 0.1, 1.0, 10.0, 60.0, 3600.0)  # the axis of durations


@dataclass(frozen=True)
class Section:
    """One question with its picture, or with words where there is nothing to draw."""

    id: str
    title: str
    note: str
    empty: str = ""
    picture: SafeString = field(default_factory=SafeString)
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    wide: bool = False
    bare: bool = False  # the table is the picture


def view(model_admin: "ModelAdmin[Any]", request: HttpRequest) -> TemplateResponse:
    """For whoever may view the records."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    chosen = request.GET.get("period", "day")
    chosen = chosen if chosen in PERIODS else "day"
    found = figures(chosen)
    now = datetime.now(UTC)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Idempotency"),
        "opts": model_admin.opts,
        "complaints": list(complaints(found)),
        "sections": list(sections(found, PERIODS[chosen], now)),
        "periods": [(name, words, name == chosen) for name, words in PERIOD_WORDS.items()],
        "now": series.local(now),
    }
    return TemplateResponse(request, "django_idempotency/dashboard.html", context)


def sections(found: Figures, period: Period, now: datetime) -> Iterator[Section]:
    yield _states(found, "open", _("Open now"), _("Nothing is open: every key has ended."), OPENED)
    yield _states(found, "ended", _("Ended and kept"), _("No answer is kept."), ENDED)
    yield _doubts(found)
    yield _durations(found)
    yield _created(found, period, now)
    yield _outcomes(found, period, now)
    yield _duties(found)


def _states(found: Figures, name: str, title: str, empty: str, statuses: Sequence[Status]) -> Section:
    estimated = name == "ended" and not found.exact
    note = _("Estimated from a sample, because there are many.") if estimated else _("Counted.")
    if name == "open" and found.overdue:
        said = ngettext(
            "%s lease has run out and waits for the sweeper.",
            "%s leases have run out and wait for the sweeper.",
            found.overdue,
        )
        note += " " + said % number(found.overdue)
    rows = [
        charts.Bar(str(STATES[status]), _count(found, status, estimated), [(KINDS[status], found.states[status])])
        for status in statuses
    ]
    if not any(found.states[status] for status in statuses):
        return Section(name, title, note, empty)
    table = [[row.label, row.said] for row in rows]
    return Section(name, title, note, "", _safe(charts.bars(title, rows)), [_("state"), _("keys")], table)


def _count(found: Figures, status: Status, estimated: bool) -> str:
    said = number(found.states[status], estimated or status in found.at_least)
    return _("%s or more") % said if status in found.at_least else said


def _doubts(found: Figures) -> Section:
    title = _("Doubts by age")
    note = _("How long ago the keys were first claimed whose outcome nobody knows.")
    if found.oldest_doubt is None:
        return Section("doubts", title, note, _("No outcome is in doubt."))
    unknown, dead = found.doubts[Status.UNKNOWN], found.doubts[Status.DEAD_LETTER]
    head = [_("age"), str(STATES[Status.UNKNOWN]), str(STATES[Status.DEAD_LETTER])]
    rows = [
        charts.Bar(label, _doubtful(young, old), [("doubt", young), ("worst", old)])
        for label, young, old in zip(_ages(), unknown, dead, strict=True)
    ]
    table = [[row.label, number(young), number(old)] for row, young, old in zip(rows, unknown, dead, strict=True)]
    return Section("doubts", title, note, "", _safe(charts.bars(title, rows)), head, table)


def _doubtful(unknown: int, dead: int) -> str:
    if not dead:
        return number(unknown)
    letters = ngettext("%s dead letter", "%s dead letters", dead) % number(dead)
    return letters if not unknown else f"{number(unknown)} + {letters}"


def _ages() -> Iterator[str]:
    for low, high in zip((0, *AGES), (*AGES, None), strict=True):
        if high is None:
            yield _("older than %s") % span(low)
        else:
            yield (
                _("under %s") % span(high)
                if not low
                else _("%(low)s to %(high)s")
                % {
                    "low": span(low),
                    "high": span(high),
                }
            )


def _durations(found: Figures) -> Section:
    title = _("How long handlers take, against their lease")
    note = _("The newest 5,000 keys. Shaded: the last two thirds of the lease, where no run should end.")
    known = {name: each for name, each in found.operations.items() if each.half is not None}
    if not known:
        return Section("durations", title, note, _("No run has been completed yet."))
    head = [_("operation"), _("runs"), _("half take up to"), _("slowest 1 % take at least"), _("lease")]
    rows, table = [], []
    for name, each in sorted(known.items(), key=lambda item: (item[1].has_room, item[0])):
        half, slow = each.half or 0.0, each.slowest_hundredth
        said = [span(half), "-" if slow is None else span(slow), span(each.lease)]
        rows.append(charts.Range(_short(name or "-"), " · ".join(said), half, slow, each.lease, not each.has_room))
        table.append([name or "-", number(len(each.seconds)), *said])
    ticks = [charts.Tick(seconds, span(seconds)) for seconds in SECONDS]
    picture = charts.ranges(title, rows[:MOST_OPERATIONS], ticks, (_("median"), _("slowest 1 %"), _("lease")))
    return Section("durations", title, note, "", _safe(picture), head, table)


def _short(name: str) -> str:
    """The end of a long name says most; the table has all of it."""
    return name if len(name) <= MOST_LETTERS else f"…{name[1 - MOST_LETTERS :]}"


def _created(found: Figures, period: Period, now: datetime) -> Section:
    title = _("Keys by the time they were created, and how they stand now")
    note = _("Each row has a scale of its own. Keys that were deleted are not in this picture.")
    if not found.exact:
        note += " " + _("What has ended is estimated from a sample.")
    series = [
        Series(str(words), KINDS[status], found.created[status], status in ENDED and not found.exact)
        for status, words in STATES.items()
        if any(found.created[status]) or status in ALWAYS
    ]
    if not any(any(each.values) for each in series):
        return Section("created", title, note, _("No key was created in this time."), wide=True)
    return _section_over_time("created", title, note, series, Axis(period.seconds, period.slots, now))


def _outcomes(found: Figures, period: Period, now: datetime) -> Section:
    title = _("What requests met")
    note = _("Each row has a scale of its own. Counted by every process and written every ten seconds.")
    if found.outcomes is None:
        off = _('Outcomes are not counted. Set IDEMPOTENCY["COUNT_OUTCOMES"] to True to see them here.')
        return Section("outcomes", title, "", off, wide=True)
    if not found.outcomes:
        return Section("outcomes", title, note, _("Nothing was counted in this time."), wide=True)
    zero = [0] * period.slots
    series = [
        Series(str(label), kind, found.outcomes.get(name, zero))
        for name, (label, kind, always) in OUTCOMES.items()
        if always or name in found.outcomes
    ]
    return _section_over_time("outcomes", title, note, series, Axis(period.seconds, period.slots, now))


def _section_over_time(name: str, title: str, note: str, series: Sequence[Series], axis: Axis) -> Section:
    head = [_("from"), *(each.label for each in series)]
    return Section(
        name,
        title,
        note,
        "",
        _safe(drawn(title, series, axis)),
        head,
        list(rows_of(series, axis)),
        wide=True,
    )


def _duties(found: Figures) -> Section:
    title = _("Duties")
    note = _("When each one last ran to its end, and what it did.")
    runs: Mapping[str, dict[str, Any]] = {run["duty"]: run for run in found.duties}
    head = [_("duty"), _("ended"), _("result")]
    return Section("duties", title, note, "", head=head, rows=list(said_of_duty(runs)), wide=True, bare=True)


def _safe(picture: str) -> SafeString:
    return mark_safe(picture)  # noqa: S308 - made by an XML writer, which escapes every word
