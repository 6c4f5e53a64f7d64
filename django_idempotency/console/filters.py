"""The filters of the record list. Each names the index along which its rows are found, so that none scans the table."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from django.contrib.admin import SimpleListFilter
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_idempotency.conf import urlconf
from django_idempotency.console.keyset import DOUBTS, EXPIRIES, LEASES, PICKED, Rows, Walk
from django_idempotency.console.wording import STATES
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.flow.registry import known_operations, reconciled_operations
from django_idempotency.flow.unattended import match_unattended
from django_idempotency.http.urlconf import operation_names

Choices = Iterable[tuple[str, Any]]

HOUR, _DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)


class Filter(SimpleListFilter):
    """A filter that names the index of its rows."""

    choices_: Mapping[Any, str | Promise] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return list(self.choices_.items())

    def walk(self) -> Walk | None:
        """Return the index in which the chosen rows are next to each other."""
        return None

    def cuts(self, walk: Walk) -> bool:
        """True if the chosen rows are one range of this index, so that no other row has to be looked at."""
        return False

    def queryset(self, request: HttpRequest, rows: Any) -> Rows:
        return rows if self.value() is None else self.narrow(rows, str(self.value()))

    def narrow(self, rows: Rows, value: str) -> Rows:
        """Return the rows of this choice."""
        raise NotImplementedError


class StatusFilter(Filter):
    title = _("status")
    parameter_name = "status"
    choices_ = {status: state.label for status, state in STATES.items()}
    walks: Final = {
        **dict.fromkeys(Status.LEASED, LEASES),
        Status.UNKNOWN: DOUBTS,
        Status.DEAD_LETTER: PICKED,
    }

    def walk(self) -> Walk | None:
        return self.walks.get(self.value())  # type: ignore[call-overload,no-any-return] # nothing chosen: None

    def cuts(self, walk: Walk) -> bool:
        return self.value() == Status.UNKNOWN and walk is DOUBTS  # no other record has a time for its next check

    def narrow(self, rows: Rows, value: str) -> Rows:
        return rows.dead_letters() if value == Status.DEAD_LETTER else rows.filter(status=value)


class NeedsFilter(Filter):
    title = _("waiting for")
    parameter_name = "needs"
    choices_ = {
        "person": _("operator (dead letter)"),
        "unattended": _("operator (no reconciler)"),
        "sweeper": _("sweeper (lease expired)"),
        "reconciler": _("reconciler (check due)"),
    }
    walks: Final = {"person": PICKED, "unattended": DOUBTS, "sweeper": LEASES, "reconciler": DOUBTS}

    def walk(self) -> Walk | None:
        return self.walks.get(str(self.value()))

    def cuts(self, walk: Walk) -> bool:
        chosen = self.walk()
        return walk is chosen and self.value() in ("sweeper", "reconciler")  # the others are no range

    def narrow(self, rows: Rows, value: str) -> Rows:
        if value == "person":
            return rows.dead_letters()
        if value == "unattended":
            return rows.filter(match_unattended())
        column = "locked_until" if value == "sweeper" else "reconcile_after"
        return rows.filter(**{f"{column}__lte": StatementNow()})


class OperationFilter(Filter):
    """Operations by name. The names come from the code; the table is not searched for them."""

    title = _("operation")
    parameter_name = "operation"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        names = list_known_names(urlconf())
        chosen = self.value()
        return [(name, name) for name in sorted({*names, *([chosen] if chosen else [])})]

    def narrow(self, rows: Rows, value: str) -> Rows:
        return rows.filter(operation=value)


class TimeFilter(Filter):
    """A range of one column."""

    column = ""

    def cuts(self, walk: Walk) -> bool:
        return walk.column == self.column


class CreatedFilter(TimeFilter):
    title = _("created")
    parameter_name = "created"
    column = "created_at"
    choices_ = {
        "hour": _("within the last hour"),
        "day": _("within the last 24 hours"),
        "week": _("within the last 7 days"),
        "earlier": _("more than 7 days ago"),
    }

    def narrow(self, rows: Rows, value: str) -> Rows:
        if value == "earlier":
            return rows.filter(created_at__lt=StatementNow() - WEEK)
        since = {"hour": HOUR, "day": _DAY, "week": WEEK}.get(value, WEEK)
        return rows.filter(created_at__gte=StatementNow() - since)


class ExpiresFilter(TimeFilter):
    title = _("expires")
    parameter_name = "expires"
    column = "expires_at"
    choices_ = {
        "past": _("expired: waiting for the reaper"),
        "hour": _("within the next hour"),
        "day": _("within the next 24 hours"),
        "later": _("later than that"),
    }

    def walk(self) -> Walk | None:
        return EXPIRIES if self.value() else None

    def narrow(self, rows: Rows, value: str) -> Rows:
        if value == "later":
            return rows.filter(expires_at__gt=StatementNow() + _DAY)
        if value == "past":
            return rows.filter(expires_at__lte=StatementNow())
        ahead = HOUR if value == "hour" else _DAY
        return rows.filter(expires_at__gt=StatementNow(), expires_at__lte=StatementNow() + ahead)


FILTERS: Final = [NeedsFilter, StatusFilter, OperationFilter, CreatedFilter, ExpiresFilter]


@lru_cache(maxsize=4)
def list_known_names(root: str | None) -> frozenset[str]:
    """Return the operations of protected views, of registered operations and of reconcilers."""
    views = [] if root is None else operation_names(root)
    return frozenset([*views, *known_operations(), *reconciled_operations()])
