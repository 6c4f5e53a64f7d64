"""The page between a button and the change: what will happen, what can go wrong, and why the operator does it."""

from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from django_idempotency.conf import conf
from django_idempotency.console import record
from django_idempotency.console.actions import BY_NAME, Action
from django_idempotency.console.explanations import Summary, describe_refusal
from django_idempotency.console.forms import LandedForm, choose_page_form
from django_idempotency.console.keyset import PAGE
from django_idempotency.console.outlook import describe_danger
from django_idempotency.console.responses import Preview, find_example
from django_idempotency.console.sight import hide_key, may_see_content
from django_idempotency.console.wording import badge, shorten_key
from django_idempotency.flow.settle import Outcome
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.records import alias

LIST_FILTERS: Final = "_changelist_filters"  # as Django's admin calls what leads back to the same list


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the chosen records, as the operator saw it."""

    row: IdempotencyKey
    seen: str  # its mark
    refusal: str  # why the action is not possible; empty if it is

    @property
    def fits(self) -> bool:
        return not self.refusal

    @property
    def badge(self) -> SafeString:
        return badge(self.row.status)

    @property
    def key(self) -> str:
        return shorten_key(self.row.key)


def redirect_to_page(name: str, admin: Any, request: HttpRequest, _rows: Any) -> HttpResponse:
    """Lead from the list's menu to the confirmation page of the ticked rows."""
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)[:PAGE]
    address = build_url(name, ",".join(ticked), admin.admin_site.name)
    filters = request.GET.urlencode()
    return HttpResponseRedirect(f"{address}&{urlencode({LIST_FILTERS: filters})}" if filters else address)


def build_url(name: str, records: str, site: str) -> str:
    return (
        f"{reverse('admin:django_idempotency_act', args=[name], current_app=site)}?records={records.replace('-', '')}"
    )


def as_view(admin: Any) -> Any:
    """Return the view, which no transaction surrounds: a reconciler's call must not hold one open."""

    @require_http_methods(["GET", "HEAD", "POST"])
    def view(request: HttpRequest, name: str) -> HttpResponse:
        action = BY_NAME.get(name)
        if action is None:
            raise Http404
        if not admin.has_view_permission(request) or not request.user.has_perm(action.permission):
            raise PermissionDenied
        return _Confirmation(admin, request, action).respond()

    return opt_out_of_atomic_requests(admin.admin_site.admin_view(view))


class _Confirmation:
    """One visit to the page."""

    def __init__(self, admin: Any, request: HttpRequest, action: Action) -> None:
        self.admin, self.request, self.action = admin, request, action
        self.form = choose_page_form(action.form)
        self.using = alias()
        found = admin.get_queryset(request).defer(None).defer("response_body", "response_headers", "arguments")
        rows = found.filter(pk__in=_parse_ids(request.GET.get("records", "")))
        self.rows = [hide_key(row, request.user) for row in rows]
        self.may_see_content = may_see_content(request.user)

    def respond(self) -> HttpResponse:
        if not self.rows:
            raise Http404(_("There is no such record."))
        if self.request.method != "POST":
            return self.show(**self._begin_form())
        form = self.form(self.request.POST)
        if not form.is_valid() or "change" in self.request.POST:
            return self.show(form)
        if isinstance(form, LandedForm) and "confirmed" not in self.request.POST:
            return self.show(form, preview=Preview(form.reply))
        return self.act(form.cleaned_data)

    def _begin_form(self) -> dict[str, Any]:
        """Return an empty form; for a response, one that starts from the last success of the same operation."""
        if not self.action.form.has_preview:
            return {"form": self.form()}
        example = find_example(self.admin.get_queryset(self.request), self.rows[0])
        if example is not None:
            hide_key(example.row, self.request.user)
        initial = example.make_initial(with_content=self.may_see_content) if example else {}
        return {"form": self.form(initial=initial), "example": example}

    def show(self, form: Any, **more: Any) -> HttpResponse:
        choices = [self._make_choice(row) for row in self.rows]
        single = self.rows[0] if len(self.rows) == 1 else None
        context = {
            **self.admin.build_page_context(self.request),
            **({} if single is None else record.build_story_context(single)),
            **more,
            "title": self.action.label,
            "action": self.action,
            "choices": choices,
            "single": single,
            "ready": any(choice.fits for choice in choices),
            "form": form,
            "may_see_content": self.may_see_content,
            "back": self._build_back_url(),
        }
        return TemplateResponse(self.request, "django_idempotency/console/confirm.html", context)

    def _make_choice(self, row: Any) -> Choice:
        return Choice(row, _compute_mark(row), describe_refusal(self.action, row, self.request.user))

    def act(self, given: dict[str, Any]) -> HttpResponse:
        report = Summary(self.action, self.request)
        until = monotonic() + conf.RECONCILE_LIMIT.total_seconds()
        for row in self.rows:
            if monotonic() >= until:
                report.add_time_used_up(row)
            else:
                self._act_on(row, given, report)
        report.send()
        return HttpResponseRedirect(self._build_back_url())

    def _act_on(self, row: IdempotencyKey, given: dict[str, Any], report: Summary) -> None:
        if self.request.POST.get(f"seen-{row.pk}") != _compute_mark(row):
            report.add_overtaken(row)
            return
        if danger := describe_danger(self.action, row):
            report.add_refused(row, danger)
            return
        outcome: Outcome = self.action.run(row.pk, by=self.request.user.get_username(), using=self.using, **given)
        if outcome in self.action.done:
            self.admin.log_change(self.request, row, f"{self.action.label}: {given['reason']} [{outcome}]")
        report.add(row, outcome)

    def _build_back_url(self) -> str:
        site = self.admin.admin_site.name
        filters = self.request.GET.get(LIST_FILTERS, "")
        if len(self.rows) == 1 and not filters:
            return record.build_url(self.rows[0].pk, site)
        address = reverse("admin:django_idempotency_idempotencykey_changelist", current_app=site)
        return f"{address}?{filters}" if filters else address


def _parse_ids(text: str) -> list[UUID]:
    try:
        return [UUID(part) for part in text.split(",")[:PAGE] if part]
    except ValueError:
        raise Http404 from None


def _compute_mark(row: IdempotencyKey) -> str:
    """Return a digest that changes with the status and the attempt, and does not reveal the token."""
    return sha256(f"{row.status} {row.attempt_token}".encode()).hexdigest()[:16]
