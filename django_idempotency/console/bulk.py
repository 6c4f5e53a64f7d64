"""Acts on all records that match the list's filter, batch by batch: each request works for some seconds and ends with
a form that continues where it stopped.
"""

from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods

from django_idempotency.console.actions import BY_NAME, Action
from django_idempotency.console.keyset import DOUBTS, PICKED, Cursor, Rows, fetch_page
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.units import format_number
from django_idempotency.store.records import alias

BATCH_SECONDS: Final = 10.0
MOST_LEFT: Final = 10_000


class BulkActionForm(ActionForm):
    """The list's menu of actions, for the ticked records or for all."""

    select_across = forms.BooleanField(
        label=gettext_lazy("All matching records, on every page"), label_suffix="", required=False
    )


class ProgressForm(forms.Form):
    """What earlier batches did, and where the next one begins."""

    cursor = forms.CharField(required=False, widget=forms.HiddenInput)
    done = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    skipped = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)


def find_page(admin: Any, request: HttpRequest) -> HttpResponse | None:
    """Lead from the list's menu to the page for all records, if that was chosen there."""
    name = request.POST.get("action", "")
    if not request.POST.get("select_across") or name not in admin.get_actions(request):
        return None
    query, listing = request.META.get("QUERY_STRING", ""), admin.get_changelist_instance(request)
    if not BY_NAME[name].across:
        messages.warning(request, _("This action needs a decision for each record: tick the records instead."))
    elif listing.walk not in (PICKED, DOUBTS):
        messages.warning(request, _("To act on all matching records, filter by “unknown” or “dead letter” first."))
    else:
        address = reverse("admin:django_idempotency_act_on_all", args=[name], current_app=admin.admin_site.name)
        return HttpResponseRedirect(f"{address}?{query}")
    return HttpResponseRedirect(request.get_full_path())


def make_view(admin: Any) -> Any:
    """Return the view, which no transaction surrounds: what was done stays done if the request is cut off."""

    @require_http_methods(["GET", "HEAD", "POST"])
    def view(request: HttpRequest, name: str) -> HttpResponse:
        action = BY_NAME.get(name)
        if action is None or not action.across:
            raise Http404
        if not admin.has_view_permission(request) or not request.user.has_perm(action.permission):
            raise PermissionDenied
        return _Bulk(admin, request, action).respond()

    return opt_out_of_atomic_requests(admin.admin_site.admin_view(view))


class _Bulk:
    """One visit to the page."""

    def __init__(self, admin: Any, request: HttpRequest, action: Action) -> None:
        self.admin, self.request, self.action = admin, request, action
        listing = admin.get_changelist_instance(request)
        if listing.walk not in (PICKED, DOUBTS):
            raise Http404
        self.walk, self.reach = listing.walk, listing.reach
        self.rows: Rows = listing.queryset.filter(status__in=action.statuses)

    def respond(self) -> HttpResponse:
        given = self.request.POST if self.request.method == "POST" else None
        form, progress = self.action.form(given), ProgressForm(given)
        if not (form.is_valid() and progress.is_valid()):
            return self.show(form, ProgressForm(), Counter())
        counts = Counter({name: progress.cleaned_data[name] or 0 for name in ("done", "skipped")})
        cursor = self.act(form.cleaned_data["reason"], Cursor.parse(progress.cleaned_data["cursor"]), counts)
        if cursor is not None:
            following = ProgressForm(initial={"cursor": str(cursor), **counts})
            return self.show(self.action.form(initial=form.cleaned_data), following, counts)
        self._sum_up(counts)
        return HttpResponseRedirect(self._build_list_url())

    def act(self, reason: str, cursor: Cursor | None, counts: Counter[str]) -> Cursor | None:
        """Work until the time is used up; return where to continue, or None at the end."""
        until = monotonic() + BATCH_SECONDS
        for page, following in self._read_pages(cursor):
            changed = [row for row in page if self._change(row, reason)]
            counts["done"] += len(changed)
            counts["skipped"] += len(page) - len(changed)
            self._log(changed, reason)
            if following is not None and monotonic() >= until:
                return following
        return None

    def _read_pages(self, cursor: Cursor | None) -> Iterator[tuple[list[IdempotencyKey], Cursor | None]]:
        while True:
            page = fetch_page(self.walk, self.reach, self.rows, cursor)
            yield page.rows, page.further
            if page.further is None:
                return
            cursor = page.further

    def _change(self, row: IdempotencyKey, reason: str) -> bool:
        outcome = self.action.run(row.pk, by=self.request.user.get_username(), using=alias(), reason=reason)
        return outcome in self.action.done

    def _log(self, changed: list[IdempotencyKey], reason: str) -> None:
        if changed:
            who = self.request.user.pk or 0
            LogEntry.objects.log_actions(who, changed, CHANGE, f"{self.action.label}: {reason}")

    def _sum_up(self, counts: Counter[str]) -> None:
        text = ngettext(
            "“%(action)s” changed %(done)s record. Skipped because they could not be changed: %(skipped)s.",
            "“%(action)s” changed %(done)s records. Skipped because they could not be changed: %(skipped)s.",
            counts["done"],
        )
        numbers = {name: format_number(counts[name]) for name in ("done", "skipped")}
        text %= {"action": self.action.label, **numbers}
        messages.add_message(self.request, messages.SUCCESS if counts["done"] else messages.WARNING, text)

    def show(self, form: Any, progress: ProgressForm, counts: Counter[str]) -> HttpResponse:
        left = len(self.rows.order_by().values_list("pk", flat=True)[: MOST_LEFT + 1])
        context = {
            **self.admin.build_page_context(self.request),
            "title": self.action.label,
            "action": self.action,
            "form": form,
            "progress": progress,
            "left": left,
            "is_more": left > MOST_LEFT,
            "left_text": format_number(min(left, MOST_LEFT)),
            "done": format_number(counts["done"]) if counts else "",
            "skipped": format_number(counts["skipped"]),
            "back": self._build_list_url(),
        }
        return TemplateResponse(self.request, "django_idempotency/console/bulk.html", context)

    def _build_list_url(self) -> str:
        site = self.admin.admin_site.name
        address = reverse("admin:django_idempotency_idempotencykey_changelist", current_app=site)
        return f"{address}?{self.request.META.get('QUERY_STRING', '')}"
