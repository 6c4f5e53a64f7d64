"""The filters of the record list. Each names the index along which its rows are found, so that none scans the table."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from django.contrib.admin import SimpleListFilter
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_idempotency.conf import urlconf, use_tz
from django_idempotency.console.keyset import DOUBTS, EXPIRIES, LEASES, PICKED, Rows, Walk
from django_idempotency.console.wording import STATES
from django_idempotency.core.states import Status
from django_idempotency.fields import StatementNow
from django_idempotency.flow.registry import known_operations, reconciled_operations
from django_idempotency.flow.unattended import match_unattended
from django_idempotency.http.urlconf import operation_names

Choices = Iterable[tuple[str, Any]]

HOUR, _DAY, WEEK, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=7), timedelta(days=30)
FAILURE: Final = "failure"
NO_ERROR: Final = "-"
FAILURES: Final = Status.IN_DOUBT | {Status.FAILED, Status.FAILED_RETRYABLE}


class Filter(SimpleListFilter):
    """A filter that names the index of its rows."""

    choices_: Mapping[Any, str | Promise] = {}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the parameters of the address that belong to this filter."""
        return (str(cls.parameter_name),)

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
    choices_ = {
        **{status.value: state.label for status, state in STATES.items()},
        FAILURE: _("any failure (unknown, dead letter, failed or 5xx)"),
    }
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
        if value == FAILURE:
            return rows.filter(Q(status__in=sorted(FAILURES)) | Q(response_status__gte=500))
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


class TypedFilter(Filter):
    """A filter whose value is typed; what was typed is its only choice."""

    template = "django_idempotency/console/typed_filter.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], *others: Any) -> None:
        self.kept = [(name, value) for name, value in request.GET.items() if name not in (*self.names(), "p", "e")]
        super().__init__(request, params, *others)

    @property
    def chosen(self) -> str:
        return str(self.value() or "")

    def has_output(self) -> bool:
        return True


class ErrorFilter(TypedFilter):
    """Records whose last attempt ended with this error."""

    title = _("error")
    parameter_name = "error"
    hint = _("The complete error code, as a record shows it.")

    def narrow(self, rows: Rows, value: str) -> Rows:
        return rows.filter(last_error_code="" if value == NO_ERROR else value)


class ResponseFilter(TypedFilter):
    """Records by the status of the stored response: one status, or a class such as 5xx."""

    title = _("response status")
    parameter_name = "http"
    hint = _("A status such as 402.")
    choices_ = {each: each for each in ("2xx", "3xx", "4xx", "5xx")}

    def narrow(self, rows: Rows, value: str) -> Rows:
        if value in self.choices_:
            first = int(value[0]) * 100
            return rows.filter(response_status__gte=first, response_status__lt=first + 100)
        return rows.filter(response_status=int(value)) if value.isdecimal() and len(value) == 3 else rows.none()


class TimeFilter(Filter):
    """A range of one column."""

    column = ""

    def cuts(self, walk: Walk) -> bool:
        return walk.column == self.column


class CreatedFilter(TypedFilter, TimeFilter):
    """A length of time that ends now, or a range between two times, of which one may be missing."""

    title = _("created")
    parameter_name = "created"
    column = "created_at"
    template = "django_idempotency/console/range_filter.html"
    choices_ = {
        "hour": _("within the last hour"),
        "day": _("within the last 24 hours"),
        "week": _("within the last 7 days"),
        "month": _("within the last 30 days"),
        "earlier": _("more than 30 days ago"),
    }

    def __init__(self, request: HttpRequest, params: dict[str, Any], *others: Any) -> None:
        self.ends = {name: str(params.pop(name)[-1]) for name in self.names()[1:] if name in params}
        super().__init__(request, params, *others)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("created", "created_from", "created_to")

    def expected_parameters(self) -> list[str | None]:
        return list(self.names())

    def value(self) -> str | None:
        return "range" if any(self.ends.values()) else super().value()

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the lengths; choosing one removes the range."""
        for choice in super().choices(changelist):
            value = choice["query_string"]
            yield {**choice, "query_string": _remove_parameters(value, self.names()[1:])}

    def narrow(self, rows: Rows, value: str) -> Rows:
        if value == "range":
            return self._narrow_to_range(rows)
        if value == "earlier":
            return rows.filter(created_at__lt=StatementNow() - MONTH)
        since = {"hour": HOUR, "day": _DAY, "week": WEEK, "month": MONTH}.get(value, WEEK)
        return rows.filter(created_at__gte=StatementNow() - since)

    def _narrow_to_range(self, rows: Rows) -> Rows:
        for name, lookup in (("created_from", "created_at__gte"), ("created_to", "created_at__lt")):
            text = self.ends.get(name, "")
            if text:
                moment = parse_moment(text)
                if moment is None:
                    return rows.none()
                rows = rows.filter(**{lookup: moment})
        return rows

    @property
    def start(self) -> str:
        return write_moment(self.ends.get("created_from", ""))

    @property
    def end(self) -> str:
        return write_moment(self.ends.get("created_to", ""))


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


FILTERS: Final[list[type[Filter]]] = [
    NeedsFilter, StatusFilter, OperationFilter, CreatedFilter, ErrorFilter, ResponseFilter, ExpiresFilter
]  # fmt: skip


def parse_moment(text: str) -> datetime | None:
    """Return the time that was typed or linked; one without an offset is on the reader's clock."""
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that was not quoted in an address
        if timezone.is_naive(moment):
            moment = timezone.make_aware(moment)
        return moment.astimezone(UTC) if use_tz() else timezone.make_naive(moment)
    except (ValueError, OverflowError):
        return None


def write_moment(text: str) -> str:
    """Return a time as the browser's field for it wants it, on the reader's clock."""
    moment = parse_moment(text) if text else None
    if moment is None:
        return ""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return local.replace(tzinfo=None).isoformat(timespec="seconds")


def _remove_parameters(query: str, names: Iterable[str]) -> str:
    kept = [(name, value) for name, value in parse_qsl(query.removeprefix("?")) if name not in names]
    return f"?{urlencode(kept)}"


@lru_cache(maxsize=4)
def list_known_names(root: str | None) -> frozenset[str]:
    """Return the operations of protected views, of registered operations and of reconcilers."""
    views = [] if root is None else operation_names(root)
    return frozenset([*views, *known_operations(), *reconciled_operations()])
