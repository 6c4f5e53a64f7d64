"""The record list: the admin's change list with its filters, search and actions, but with keyset pages."""

from typing import Any, Literal
from uuid import UUID

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_idempotency.console.filters import Filter
from django_idempotency.console.keyset import NEWEST, PICKED, Cursor, Page, Rows, Walk, fetch_page
from django_idempotency.core.refs import parse_namespace


class Listing(ChangeList):
    """Counts nothing; each page ends with a link to the place where the next one begins."""

    page: Page
    root_queryset: Rows
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
        return self._search(rows)

    def _search(self, rows: Rows) -> Rows:
        term = self.query.strip()
        if not term:
            return rows
        found = find_named(rows, term)
        if found is None:
            return filter_principal(rows, term)
        self.walk, self.reach = PICKED, found
        return found

    def get_results(self, request: HttpRequest) -> None:
        self.cursor = Cursor.parse(request.GET.get(PAGE_VAR, ""))
        self.page = fetch_page(self.walk, self.reach, self.queryset, self.cursor)
        self.result_list = self.page.rows
        self.result_count = self.full_result_count = len(self.page.rows)
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True

    def get_ordering_field_columns(self) -> dict[int, Literal["desc", "asc"]]:
        """Return no column: each list has the order of its index."""
        return {}

    @property
    def further_link(self) -> str | None:
        return self.get_query_string({PAGE_VAR: self.page.further}) if self.page.further else None

    @property
    def first_link(self) -> str | None:
        return self.get_query_string() if self.cursor else None


def find_named(rows: Rows, term: str) -> Rows | None:
    """Return the records with this key, id or downstream key; None if there are none."""
    condition = Q(key=term.strip('"'))
    record = parse_record(term)
    if record is not None:
        namespace = parse_namespace(term)  # another installation's record may have the same id
        condition |= Q(pk=record) if namespace is None else Q(pk=record, namespace=namespace)
    found = rows.filter(condition)
    return found if found.exists() else None


def parse_record(term: str) -> UUID | None:
    """Return the record's id that an id or a downstream key contains."""
    if len(term) > 36 and term[36] != "-":
        return None
    try:
        return UUID(term[:36])
    except ValueError:
        return None


def filter_principal(rows: Rows, term: str) -> Rows:
    return rows.filter(principal=term)
