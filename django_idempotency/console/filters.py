"""The filters of the record list. Each says along which index its rows are found, so that none reads the table."""

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
from django_idempotency.http.urlconf import operation_names
from django_idempotency.monitoring.health import only_dead_letters

Choices = Iterable[tuple[str, Any]]

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)


class Filter(SimpleListFilter):
    """A filter that knows how its rows are found."""

    choices_: Mapping[Any, str | Promise] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return list(self.choices_.items())

    def walk(self) -> Walk | None:
        """The index along which the chosen rows stand together."""
        return None

    def cuts(self, walk: Walk) -> bool:
        """Whether the choice is a range of this walk, so that nothing has to be looked through for it."""
        return False

    def queryset(self, request: HttpRequest, rows: Rows) -> Rows:
        return rows if self.value() is None else self.narrowed(rows, str(self.value()))

    def narrowed(self, rows: Rows, value: str) -> Rows:
        """The rows of this choice: each filter says which those are."""
        raise NotImplementedError


class StatusFilter(Filter):
    title = _("status")
    parameter_name = "status"
    choices_ = STATES
    walks: Final = {
        Status.PENDING: LEASES,
        Status.IN_PROGRESS: LEASES,
        Status.UNKNOWN: DOUBTS,
        Status.DEAD_LETTER: PICKED,
    }

    def walk(self) -> Walk | None:
        return self.walks.get(self.value())  # type: ignore[call-overload,no-any-return] # nothing chosen: None

    def cuts(self, walk: Walk) -> bool:
        return self.value() == Status.UNKNOWN and walk is DOUBTS  # no other record has a time to be asked about

    def narrowed(self, rows: Rows, value: str) -> Rows:
        return only_dead_letters(rows) if value == Status.DEAD_LETTER else rows.filter(status=value)


class NeedsFilter(Filter):
    title = _("what waits")
    parameter_name = "needs"
    choices_ = {
        "person": _("for a person"),
        "sweeper": _("for the sweeper: lease over"),
        "reconciler": _("for the reconciler: due"),
    }
    walks: Final = {"person": PICKED, "sweeper": LEASES, "reconciler": DOUBTS}

    def walk(self) -> Walk | None:
        return self.walks.get(str(self.value()))

    def cuts(self, walk: Walk) -> bool:
        return walk is self.walk() is not PICKED

    def narrowed(self, rows: Rows, value: str) -> Rows:
        if value == "person":
            return only_dead_letters(rows)
        column = "locked_until" if value == "sweeper" else "reconcile_after"
        return rows.filter(**{f"{column}__lte": StatementNow()})


class OperationFilter(Filter):
    """Names come from the code: the table is never asked which ones it holds."""

    title = _("operation")
    parameter_name = "operation"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        names = known_names(urlconf())
        chosen = self.value()
        return [(name, name) for name in sorted({*names, *([chosen] if chosen else [])})]

    def narrowed(self, rows: Rows, value: str) -> Rows:
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

    def narrowed(self, rows: Rows, value: str) -> Rows:
        if value == "earlier":
            return rows.filter(created_at__lt=StatementNow() - WEEK)
        since = {"hour": HOUR, "day": DAY, "week": WEEK}.get(value, WEEK)
        return rows.filter(created_at__gte=StatementNow() - since)


class ExpiresFilter(TimeFilter):
    title = _("expires")
    parameter_name = "expires"
    column = "expires_at"
    choices_ = {
        "past": _("over: waits for the reaper"),
        "hour": _("within the next hour"),
        "day": _("within the next 24 hours"),
        "later": _("later than that"),
    }

    def walk(self) -> Walk | None:
        return EXPIRIES if self.value() else None

    def narrowed(self, rows: Rows, value: str) -> Rows:
        if value == "later":
            return rows.filter(expires_at__gt=StatementNow() + DAY)
        if value == "past":
            return rows.filter(expires_at__lte=StatementNow())
        ahead = HOUR if value == "hour" else DAY
        return rows.filter(expires_at__gt=StatementNow(), expires_at__lte=StatementNow() + ahead)


FILTERS: Final = [NeedsFilter, StatusFilter, OperationFilter, CreatedFilter, ExpiresFilter]


@lru_cache(maxsize=4)
def known_names(root: str | None) -> frozenset[str]:
    """Every operation that the code knows: of the protected views, of registered operations, of reconcilers."""
    views = [] if root is None else operation_names(root)
    return frozenset([*views, *known_operations(), *reconciled_operations()])
