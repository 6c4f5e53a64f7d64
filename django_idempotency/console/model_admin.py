"""The admin of the records: a list, a page for each record, and operator actions."""

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_idempotency.console import actions, bulk, changelist, columns, confirmation, record
from django_idempotency.console.bulk import BulkActionForm
from django_idempotency.console.changelist import Listing
from django_idempotency.console.dashboard import page
from django_idempotency.console.filters import FILTERS
from django_idempotency.console.keyset import Rows
from django_idempotency.console.sight import may_see_content
from django_idempotency.console.wording import badge
from django_idempotency.http.admin_tenants import find_tenant
from django_idempotency.models import IdempotencyKey

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[IdempotencyKey]
else:
    _Admin = admin.ModelAdmin


class IdempotencyKeyAdmin(_Admin):
    """Nothing is edited here: every change is made by an action, and guarded by its statement."""

    list_display = ("shown_status", "shown_key", "waits", "work", "created", "shown_attempts")
    list_display_links = None
    list_filter = (*FILTERS,)
    search_fields = ("key",)
    search_help_text = _("The beginning of a key; a complete record id or downstream key; a principal or a username.")
    sortable_by = ()
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    actions_selection_counter = True
    action_form = BulkActionForm
    change_list_template = "django_idempotency/console/list.html"

    class Media:
        css = {"all": ["django_idempotency/console.css"]}
        js = ["django_idempotency/copy.js"]

    def get_queryset(self, request: HttpRequest) -> Rows:
        rows, tenant = changelist.read_all(), find_tenant(request)
        return rows if tenant is None else rows.filter(tenant=tenant)

    def may_see_dashboard(self, request: HttpRequest) -> bool:
        """True if this person may see the figures, which are those of all tenants."""
        return self.has_view_permission(request) and find_tenant(request) is None

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[Listing]:
        return Listing

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if not search_term:
            return queryset, False
        found = changelist.find_named(queryset, search_term, request.user)
        return (changelist.filter_principal(queryset, search_term) if found is None else found), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow the filters' own lookups; reject NUL, which PostgreSQL would reject later."""
        return lookup in {name for each in FILTERS for name in each.names()} and "\x00" not in str(value)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Return the actions of the list; a record's page has its own buttons. Django 6.1 passes a location."""
        allowed = actions.list_allowed(request.user)
        return {
            each.name: (partial(confirmation.redirect_to_page, each.name), each.name, each.label) for each in allowed
        }

    def get_urls(self) -> list[URLPattern]:
        dashboard = self.admin_site.admin_view(partial(page.view, self))
        return [
            path("dashboard/", dashboard, name="django_idempotency_dashboard"),
            path("act/<slug:name>/all/", bulk.make_view(self), name="django_idempotency_act_on_all"),
            path("act/<slug:name>/", confirmation.as_view(self), name="django_idempotency_act"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        chosen = bulk.find_page(self, request) if self.has_view_permission(request) else None
        if chosen is not None:
            return chosen
        context = {"may_see_dashboard": self.may_see_dashboard(request), **(extra_context or {})}
        return super().changelist_view(request, context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        found = changelist.parse_record(unquote(object_id))
        may_see = may_see_content(request.user)
        row = record.find_row(self.get_queryset(request), found, with_content=may_see) if found else None
        if row is None:
            messages.warning(request, _("There is no such record. Records are deleted after their retention."))
            return redirect("admin:django_idempotency_idempotencykey_changelist")
        context = {**self.build_page_context(request), **record.build_context(row, request, self.admin_site)}
        return TemplateResponse(request, "django_idempotency/console/record.html", context)

    def build_page_context(self, request: HttpRequest) -> dict[str, Any]:
        request.current_app = self.admin_site.name
        return {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}

    @admin.display(description=_("status"))
    def shown_status(self, row: Any) -> SafeString:
        return badge(row.status)

    @admin.display(description=_("key"))
    def shown_key(self, row: Any) -> SafeString:
        return columns.render_key(row, record.build_url(row.pk, self.admin_site.name))

    @admin.display(description=_("work"))
    def work(self, row: Any) -> SafeString:
        return columns.render_work(row)

    @admin.display(description=_("created"))
    def created(self, row: Any) -> SafeString:
        return columns.render_moment(row.created_at, row.read_at)

    @admin.display(description=_("next"))
    def waits(self, row: Any) -> SafeString:
        return columns.render_next(row)

    @admin.display(description=_("attempts"))
    def shown_attempts(self, row: Any) -> str:
        return columns.format_attempts(row)
