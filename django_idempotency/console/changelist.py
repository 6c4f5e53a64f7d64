"""The record list as the admin's change list: the same filters, search and actions, pages of its own."""

from typing import Any, Literal
from uuid import UUID

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_idempotency.console.filters import Filter
from django_idempotency.console.keyset import NEWEST, PICKED, Cursor, Page, Rows, Walk, page


class Listing(ChangeList):
    """Counts nothing; a page ends with the place where the next one begins."""

    page: Page
    walk: Walk
    reach: Rows
    cursor: Cursor | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.title = _("Idempotency keys")

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Rows:
        self.filter_specs, self.has_filters, others, _twice, self.has_active_filters = self.get_filters(request)
        if others:
            raise IncorrectLookupParameters
        active = [spec for spec in self.filter_specs if isinstance(spec, Filter) and spec.value() is not None]
        self.walk = next(filter(None, (spec.walk() for spec in active)), NEWEST)
        self.reach = self.root_queryset
        for spec in active:
            if spec.cuts(self.walk):
                self.reach = spec.queryset(request, self.reach)
        rows = self.reach
        for spec in active:
            if not spec.cuts(self.walk):
                rows = spec.queryset(request, rows)
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        return self._searched(rows)

    def _searched(self, rows: Rows) -> Rows:
        term = self.query.strip()
        if not term:
            return rows
        found = named(rows, term)
        if found is None:
            return of_principal(rows, term)
        self.walk, self.reach = PICKED, found
        return found

    def get_results(self, request: HttpRequest) -> None:
        self.cursor = Cursor.parse(request.GET.get(PAGE_VAR, ""))
        self.page = page(self.walk, self.reach, self.queryset, self.cursor)
        self.result_list = self.page.rows
        self.result_count = self.full_result_count = len(self.page.rows)
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True

    def get_ordering_field_columns(self) -> dict[int, Literal["desc", "asc"]]:
        """No column can be sorted by: each list has the order of its index."""
        return {}

    @property
    def further_link(self) -> str | None:
        return self.get_query_string({PAGE_VAR: self.page.further}) if self.page.further else None

    @property
    def first_link(self) -> str | None:
        return self.get_query_string() if self.cursor else None


def named(rows: Rows, term: str) -> Rows | None:
    """The records that this key or id names; None when it names none."""
    condition = Q(key=term.strip('"'))
    record = record_in(term)
    if record is not None:
        condition |= Q(pk=record)
    found = rows.filter(condition)
    return found if found.exists() else None


def record_in(term: str) -> UUID | None:
    """The record that an id or a derived key leads to."""
    if len(term) > 36 and term[36] != "-":
        return None
    try:
        return UUID(term[:36])
    except ValueError:
        return None


def of_principal(rows: Rows, term: str) -> Rows:
    return rows.filter(principal=term)
