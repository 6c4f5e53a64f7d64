"""The record list: the admin's change list with its filters, search and actions, but with keyset pages."""

from typing import Any, Final, Literal
from uuid import UUID

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_idempotency.console.bodies import CONTENT
from django_idempotency.console.filters import Filter
from django_idempotency.console.keyset import NEWEST, PAGE, PICKED, Cursor, Page, Rows, Walk, fetch_page
from django_idempotency.console.relations import find_principals
from django_idempotency.console.sight import hide_key, may_see_content
from django_idempotency.core.calls import ANONYMOUS
from django_idempotency.core.links import docs_url
from django_idempotency.core.refs import parse_namespace
from django_idempotency.http.admin_tenants import find_tenant
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.records import alias

LEAST: Final = 4  # characters of the beginning of a key
NEAR: Final = 500


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
        cuts = [spec for spec in active if spec.cuts(self.walk)]
        self.reach = rows = _narrow(self.root_queryset, cuts, request)
        if find_tenant(request) is not None:  # its records are searched for among those of all
            self.reach = _narrow(read_all(), cuts, request)
        for spec in active:
            if not spec.cuts(self.walk):
                rows = spec.queryset(request, rows)
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        return self._search(rows, request.user)

    def _search(self, rows: Rows, user: Any) -> Rows:
        term = self.query.strip()
        if not term:
            return rows
        found = find_named(rows, term, user)
        if found is None:
            return filter_principal(rows, term)
        self.walk, self.reach = PICKED, found
        return found

    @property
    def summary(self) -> str:
        """Return how many records the page shows, and in which order."""
        number, order = self.result_count, self.walk.order
        if self.page.further is None and self.cursor is None:
            text = ngettext("%(number)d record, %(order)s.", "%(number)d records, %(order)s.", number)
        elif self.cursor is None:
            text = ngettext("First record, %(order)s.", "First %(number)d records, %(order)s.", number)
        else:
            text = ngettext("%(number)d more record, %(order)s.", "%(number)d more records, %(order)s.", number)
        return text % {"number": number, "order": order}

    @property
    def advice(self) -> str:
        """Return what to do where nothing is shown."""
        if self.query:
            text = _(
                "Nothing matched “%(query)s”. Search for the beginning of a key (at least %(least)d characters), a "
                "complete record id or downstream key, a principal such as user:7, or a username."
            )
            return text % {"query": self.query, "least": LEAST}
        if self.page.looked_to is not None:
            return _("None among the records that were searched. Search older records, or choose a later time.")
        if self.has_active_filters or self.cursor is not None:
            return _("No record matches these filters. Clear one of them to see more.")
        return _("No key has been used yet. Protect a view, and send a request with an idempotency key.")

    @property
    def guide_url(self) -> str:
        """Return where the first steps are described; empty if there are records."""
        is_new = not (self.query or self.has_active_filters or self.cursor)
        return docs_url("tutorial/index") if is_new else ""

    def get_results(self, request: HttpRequest) -> None:
        self.cursor = Cursor.parse(request.GET.get(PAGE_VAR, ""))
        self.page = fetch_page(self.walk, self.reach, self.queryset, self.cursor)
        self.result_list = [hide_key(row, request.user) for row in self.page.rows]
        self.result_count = self.full_result_count = len(self.page.rows)
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = bool(self.result_count or self.page.further)

    def get_ordering_field_columns(self) -> dict[int, Literal["desc", "asc"]]:
        """Return no column: each list has the order of its index."""
        return {}

    @property
    def further_link(self) -> str | None:
        return self.get_query_string({PAGE_VAR: self.page.further}) if self.page.further else None

    @property
    def first_link(self) -> str | None:
        return self.get_query_string() if self.cursor else None


def read_all() -> Rows:
    """Return the records with what lists show of them."""
    return IdempotencyKey.objects.using(alias()).defer(*CONTENT).with_time()


def _narrow(rows: Rows, filters: list[Filter], request: HttpRequest) -> Rows:
    for each in filters:
        rows = each.queryset(request, rows)
    return rows


def find_named(rows: Rows, term: str, user: Any) -> Rows | None:
    """Return the records with this key, id or downstream key, or with keys that begin so; None if there are none."""
    record = parse_record(term)
    if record is not None:
        namespace = parse_namespace(term)  # another installation's record may have the same id
        named = Q(pk=record) if namespace is None else Q(pk=record, namespace=namespace)
        found = rows.filter(named | Q(key=term))
        if found.exists():
            return found
    begun = list_begun_with(rows, term.strip('"'), user)
    return rows.filter(pk__in=begun) if begun else None


def list_begun_with(rows: Rows, term: str, user: Any) -> list[UUID]:
    """Return the records with this key; if there are none, those whose keys begin so. Walks along the index of keys.

    A database may sort other keys between them, so more rows are read than are shown. Keys that are hidden from this
    person are found only whole: it could find out the next character by searching.
    """
    found = list(rows.filter(key__gte=term).order_by("key").values_list("pk", "key", "principal")[:NEAR])
    exact = [record for record, key, _principal in found if key == term]
    if exact or len(term) < LEAST:
        return exact
    hides = not may_see_content(user)
    near = [(record, key) for record, key, principal in found if not (hides and principal == ANONYMOUS)]
    return [record for record, key in near if key.startswith(term)][:PAGE]


def parse_record(term: str) -> UUID | None:
    """Return the record's id that an id or a downstream key contains."""
    if len(term) > 36 and term[36] != "-":
        return None
    try:
        return UUID(term[:36])
    except ValueError:
        return None


def filter_principal(rows: Rows, term: str) -> Rows:
    """Return the records of this principal, or of the user with this name."""
    return rows.filter(principal__in=[term, *([] if ":" in term else find_principals(term))])
