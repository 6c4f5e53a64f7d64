"""The view of the dashboard."""

from datetime import UTC, datetime
from typing import Any, Final

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.console.dashboard.numbers import PERIODS, load_figures
from django_idempotency.console.dashboard.sections import build_sections
from django_idempotency.console.dashboard.series import to_local
from django_idempotency.monitoring.findings import describe

PERIOD_LABELS: Final = {"day": gettext_lazy("last 24 hours"), "week": gettext_lazy("last 7 days")}


def view(model_admin: "ModelAdmin[Any]", request: HttpRequest) -> TemplateResponse:
    """Show the dashboard to everybody who may view the records."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    chosen = request.GET.get("period", "day")
    chosen = chosen if chosen in PERIODS else "day"
    found = load_figures(chosen)
    now = datetime.now(UTC)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Idempotency"),
        "opts": model_admin.opts,
        "problems": [describe(finding) for finding in found.findings],
        "sections": list(build_sections(found, PERIODS[chosen], now)),
        "periods": [(name, label, name == chosen) for name, label in PERIOD_LABELS.items()],
        "now": to_local(now),
    }
    return TemplateResponse(request, "django_idempotency/dashboard.html", context)
