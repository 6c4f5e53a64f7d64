"""The view of the dashboard."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.conf import urlconf
from django_idempotency.console.dashboard.links import Link, Links
from django_idempotency.console.dashboard.numbers import PERIODS, Figures, load_figures
from django_idempotency.console.dashboard.sections import build_charts, build_charts_over_time
from django_idempotency.console.dashboard.series import to_local
from django_idempotency.console.dashboard.tables import build_upkeep, build_work
from django_idempotency.console.filters import list_known_names
from django_idempotency.core.links import docs_url
from django_idempotency.http.admin_tenants import find_tenant
from django_idempotency.models import Dashboard
from django_idempotency.monitoring.findings import describe

if TYPE_CHECKING:
    _Admin = ModelAdmin[Dashboard]
else:
    _Admin = ModelAdmin

PERIOD_LABELS: Final = {
    "hour": gettext_lazy("last hour"),
    "day": gettext_lazy("last 24 hours"),
    "week": gettext_lazy("last 7 days"),
    "month": gettext_lazy("last 30 days"),
}
LIVE_SECONDS: Final = 30


class DashboardAdmin(_Admin):
    """Leads from the admin's index to the dashboard, which belongs to the record list."""

    def get_urls(self) -> list[URLPattern]:
        return [path("", self.admin_site.admin_view(self._redirect), name="django_idempotency_dashboard_changelist")]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("django_idempotency.view_idempotencykey")) and find_tenant(request) is None

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def _redirect(self, request: HttpRequest) -> HttpResponse:
        address = reverse("admin:django_idempotency_dashboard", current_app=self.admin_site.name)
        return HttpResponseRedirect(address)


def view(model_admin: Any, request: HttpRequest) -> TemplateResponse:
    """Show the dashboard to everybody who may view the records of all tenants."""
    if not model_admin.may_see_dashboard(request):
        raise PermissionDenied
    links = _read_address(model_admin.admin_site.name, request)
    found = load_figures(links.period, links.operation)
    links = replace(links, now=found.at)
    context = {
        **model_admin.build_page_context(request),
        "title": _("Idempotency dashboard"),
        "problems": [(Link(describe(each), links.explain(each)), each.runbook or each.url) for each in found.findings],
        "sections": _build_sections(found, links),
        "periods": [(label, links.page(period=name), name == links.period) for name, label in PERIOD_LABELS.items()],
        "links": links,
        "names": _list_names(found, links),
        "switch": links.page(live=not links.live),
        "again": links.page(),
        "every": LIVE_SECONDS,
        "start": docs_url("start/quick-start") if found.is_empty else "",
        "now": to_local(links.now),
    }
    response = TemplateResponse(request, "django_idempotency/dashboard.html", context)
    if links.live:
        response["Refresh"] = str(LIVE_SECONDS)  # the browser itself loads the page again: no script is needed
    return response


def _read_address(site: str, request: HttpRequest) -> Links:
    period, operation = request.GET.get("period", ""), request.GET.get("operation") or None
    chosen = period if period in PERIODS else "day"
    return Links(site, chosen, datetime.now(UTC), operation, request.GET.get("live") == "1")


def _build_sections(found: Figures, links: Links) -> list[Any]:
    period = PERIODS[links.period]
    now, over_time = build_charts(found, links), build_charts_over_time(found, period, links)
    return [*now, *build_work(found, period, links), *over_time, *build_upkeep(found, links)]


def _list_names(found: Figures, links: Links) -> list[str]:
    """Return the operations that can be chosen."""
    seen = {*list_known_names(urlconf()), *found.work, *([links.operation] if links.operation else [])}
    return sorted(name for name in seen if name)
