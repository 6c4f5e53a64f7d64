"""Addresses of the record list with filters: where the records behind a number are."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from django_idempotency.core.links import docs_url
from django_idempotency.core.states import Status
from django_idempotency.monitoring.findings import Code, Finding
from django_idempotency.store.dashboard import AGES

NEEDS: Final = {  # the filters that show what a finding is about
    Code.DEAD_LETTERS: {"needs": "person"},
    Code.UNATTENDED: {"needs": "unattended"},
    Code.LEASE_OVERDUE: {"needs": "sweeper"},
    Code.WORK_WAITING: {"status": Status.PENDING.value},
    Code.UNKNOWN_OLD: {"status": Status.UNKNOWN.value},
    Code.UNKNOWN_MANY: {"status": Status.UNKNOWN.value},
}
JOB_CODES: Final = (Code.JOB_FAILED, Code.JOB_NEVER_RAN, Code.JOB_LATE)


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads to the records behind it."""

    text: str
    url: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Links:
    """The record list, the dashboard's own period and the operation that it shows."""

    site: str
    period: str
    now: datetime
    operation: str | None = None
    live: bool = False

    def list(self, **filters: str) -> str:
        """Return the list with these filters and the operation that the page shows."""
        if self.operation is not None:
            filters.setdefault("operation", self.operation)
        address = reverse("admin:django_idempotency_idempotencykey_changelist", current_app=self.site)
        return f"{address}?{urlencode(filters)}" if filters else address

    def between(self, oldest: float | None, newest: float, **filters: str) -> str:
        """Return the list of what was created between so many seconds ago."""
        ends = {"created_to": self._write_moment(newest)} if newest > 0 else {}
        if oldest is not None:
            ends = {"created_from": self._write_moment(oldest), **ends}
        return self.list(**filters, **ends)

    def ages(self, status: Status) -> Iterator[str]:
        """Return the lists of the age groups."""
        lows, highs = (0, *AGES), (*AGES, None)
        for low, high in zip(lows, highs, strict=True):
            yield self.between(high, low, status=status.value)

    def in_period(self, **filters: str) -> str:
        return self.list(**filters, created=self.period)

    def page(self, **changes: object) -> str:
        """Return this page with another period or operation, or with the refresh switched."""
        other = replace(self, **changes)  # type: ignore[arg-type] # names of fields
        values = {"period": other.period}
        if other.operation is not None:
            values["operation"] = other.operation
        if other.live:
            values["live"] = "1"
        return f"?{urlencode(values)}"

    def explain(self, finding: Finding) -> str:
        """Return where to look because of a finding."""
        if finding.code in NEEDS:
            return replace(self, operation=None).list(**NEEDS[finding.code])
        if finding.code in JOB_CODES:
            return "#jobs"
        if "operation" in finding.values:
            return f"{self.page(operation=finding.values['operation'])}#durations"
        return docs_url("reference/commands", "idempotency-doctor")

    def _write_moment(self, ago: float) -> str:
        return (self.now - timedelta(seconds=ago)).isoformat()
