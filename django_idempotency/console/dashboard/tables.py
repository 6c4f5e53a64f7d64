"""The sections of the dashboard that are tables: operations, causes, maintenance jobs and endpoints."""

from collections.abc import Iterator, Mapping

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from django_idempotency.console.dashboard import endpoints
from django_idempotency.console.dashboard.links import Link, Links
from django_idempotency.console.dashboard.numbers import Cause, Figures, Period, Work
from django_idempotency.console.dashboard.sections import Cells, Section
from django_idempotency.console.filters import NO_ERROR
from django_idempotency.console.wording import COUNTS, STATES, format_estimate
from django_idempotency.core.states import Status
from django_idempotency.monitoring.durations import NEWEST_RECORDS
from django_idempotency.monitoring.jobs import BY_NAME, SCHEDULED
from django_idempotency.monitoring.rules import JobRun
from django_idempotency.monitoring.units import format_duration, format_interval, format_number


def build_work(found: Figures, period: Period, links: Links) -> Iterator[Section]:
    """Build what tells one operation from another."""
    yield _build_operations(found, period, links)
    if found.causes:
        yield _build_causes(found, links)


def build_upkeep(found: Figures, links: Links) -> Iterator[Section]:
    """Build what is about the installation, whatever operation is shown."""
    yield _build_jobs(found)
    yield _build_endpoints(found, links)


def _build_operations(found: Figures, period: Period, links: Links) -> Section:
    note = _(
        "Keys created in this period. Failures are unknown outcomes, dead letters, failed attempts and stored 5xx "
        "responses. Median and p99 are those of the newest %(count)s keys."
    ) % {"count": format_number(NEWEST_RECORDS)}
    head = [
        _("operation"), _("keys"), _("throughput"), _("failures"), _("unknown now"), _("dead letters now"),
        _("median"), _("p99"), _("lease"),
    ]  # fmt: skip
    rows = [_build_work_row(name, work, found, period, links) for name, work in found.work.items()]
    empty = "" if rows else _("No key was created in this period.")
    return Section("work", _("Operations"), note, empty, head=head, rows=rows, wide=True, bare=True)


def _build_work_row(name: str, work: Work, found: Figures, period: Period, links: Links) -> Cells:
    write = format_number if found.exact_created else format_estimate
    share = _("%s %%") % number_format(100 * work.failed / work.created, decimal_pos=1) if work.created else "-"
    median, p99, lease = _describe_durations(work)
    return [
        Link(name or "-", links.page(operation=name)),
        _link(write(work.created), work.created, links.in_period(operation=name)),
        _format_rate(work.created / period.seconds),
        _link(share, work.failed, links.in_period(operation=name, status="failure")),
        _link(_count(found, Status.UNKNOWN, work.unknown), work.unknown, links.list(operation=name, status="unknown")),
        _link(
            _count(found, Status.DEAD_LETTER, work.dead_letters),
            work.dead_letters,
            links.list(operation=name, status="dead_letter"),
        ),
        median,
        p99,
        lease,
    ]


def _format_rate(per_second: float) -> str:
    """Return a rate in the unit in which it is a number of one or more."""
    if per_second * 60 >= 1:
        return _("%s per min") % number_format(per_second * 60, decimal_pos=1)
    if per_second * 3600 >= 1:
        return _("%s per h") % number_format(per_second * 3600, decimal_pos=1)
    per_day = per_second * 86_400
    return _("%s per d") % number_format(per_day, decimal_pos=1 if per_day >= 0.1 else 2)


def _link(text: str, count: int, url: str) -> str | Link:
    return Link(text, url) if count else text


def _count(found: Figures, status: Status, count: int) -> str:
    return format_estimate(count) if count and status in found.at_least else format_number(count)


def _describe_durations(work: Work) -> tuple[str, str, str]:
    stats = work.stats
    if stats is None:
        return "-", "-", "-"
    median, p99 = ("-" if value is None else format_duration(value) for value in (stats.median, stats.p99))
    return median, p99, format_duration(stats.lease)


def _build_causes(found: Figures, links: Links) -> Section:
    note = _("What the last attempt of each unknown outcome and dead letter ended with, the most frequent first.")
    if found.at_least & Status.IN_DOUBT:
        note += " " + _("There are more than were counted here.")
    head = [_("operation"), _("error"), _("state"), _("keys"), _("oldest")]
    rows = [_build_cause(cause, links) for cause in found.causes]
    return Section("causes", _("Unknown outcomes by error"), note, head=head, rows=rows, wide=True, bare=True)


def _build_cause(cause: Cause, links: Links) -> Cells:
    url = links.list(operation=cause.operation, status=cause.status.value, error=cause.error or NO_ERROR)
    label, oldest = str(STATES[cause.status].label), format_interval(cause.oldest)
    return [cause.operation or "-", cause.error or "-", label, Link(format_number(cause.count), url), oldest]


def _build_jobs(found: Figures) -> Section:
    note = _("When each one last ran to its end, and what it did.")
    names = [*(job.name for job in SCHEDULED), *found.runs]
    rows = [_describe_run(name, found.runs.get(name)) for name in dict.fromkeys(names)]
    head = [_("job"), _("ended"), _("result")]
    return Section("jobs", _("Maintenance jobs"), note, head=head, rows=rows, wide=True, bare=True)


def _describe_run(name: str, run: JobRun | None) -> list[str]:
    label = f"{name}: {BY_NAME[name].purpose}" if name in BY_NAME else name
    if run is None or run.finished_ago is None:
        return [label, _("never"), "" if run is None else run.error]
    ended = _("%s ago") % format_interval(run.finished_ago, units=1)
    return [label, ended, run.error or _describe_counts(run.counts)]


def _describe_counts(counts: Mapping[str, int]) -> str:
    done = {COUNTS.get(name, name.replace("_", " ")): count for name, count in counts.items() if count}
    return ", ".join(f"{name}: {format_number(count)}" for name, count in done.items()) or _("nothing to do")


def _build_endpoints(found: Figures, links: Links) -> Section:
    listed = endpoints.list_by_protection()
    note = endpoints.count_by_protection(listed)
    rows = [endpoints.build_row(entry, found, links) for entry in listed]
    empty = "" if rows else _("No endpoint takes POST or PATCH.")
    return Section("endpoints", _("Endpoints"), note, empty, head=endpoints.head_of_endpoints(), rows=rows, wide=True)
