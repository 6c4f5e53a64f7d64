"""The page between a button and the change: what will happen, what can go wrong, and why the operator does it."""

from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any
from uuid import UUID

from django.contrib import messages
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
from django_idempotency.console.actions import BY_NAME, OUTCOMES, UNDECIDED, Action
from django_idempotency.console.keyset import PAGE
from django_idempotency.console.wording import STATES, badge, shorten_key
from django_idempotency.flow.settle import Outcome
from django_idempotency.flow.unattended import is_unattended
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.units import format_interval
from django_idempotency.store import records
from django_idempotency.store.records import alias


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the chosen records, as the operator saw it."""

    row: IdempotencyKey
    fits: bool
    seen: str  # its mark
    grace: str  # how long the grace period still lasts; empty where that does not matter
    unattended: bool  # its operation has no reconciler to ask

    @property
    def badge(self) -> SafeString:
        return badge(self.row.status)

    @property
    def key(self) -> str:
        return shorten_key(self.row.key)


def redirect_to_page(name: str, admin: Any, request: HttpRequest, _rows: Any) -> HttpResponse:
    """Lead from the list's menu to the confirmation page of the ticked rows."""
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)[:PAGE]
    return HttpResponseRedirect(build_url(name, ",".join(ticked), admin.admin_site.name))


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
        self.using = alias()
        self.rows = list(admin.get_queryset(request).filter(pk__in=_parse_ids(request.GET.get("records", ""))))

    def respond(self) -> HttpResponse:
        if not self.rows:
            raise Http404(_("There is no such record."))
        form = self.action.form(self.request.POST if self.request.method == "POST" else None)
        if form.is_valid():
            return self.act(form.cleaned_data)
        return self.show(form)

    def show(self, form: Any) -> HttpResponse:
        choices = [self._make_choice(row) for row in self.rows]
        context = {
            **self.admin.build_page_context(self.request),
            "title": self.action.label,
            "action": self.action,
            "choices": choices,
            "ready": any(choice.fits for choice in choices),
            "form": form,
            "back": self._build_back_url(),
        }
        return TemplateResponse(self.request, "django_idempotency/console/confirm.html", context)

    def _make_choice(self, row: Any) -> Choice:
        fits = row.status in self.action.statuses
        waits = fits and self.action.after_grace and row.grace_until is not None and row.grace_until > row.now
        grace = format_interval(row.grace_until - row.now) if waits else ""
        unattended = self.action.polls and is_unattended(row)
        return Choice(row, fits and not waits and not unattended, _compute_mark(row), grace, unattended)

    def act(self, given: dict[str, Any]) -> HttpResponse:
        until = monotonic() + conf.RECONCILE_LIMIT.total_seconds()
        for row in self.rows:
            if monotonic() >= until:
                self._notify(messages.WARNING, row, _("The time for one request was used up; try again."))
                continue
            self._act_on(row, given)
        return HttpResponseRedirect(self._build_back_url())

    def _act_on(self, row: IdempotencyKey, given: dict[str, Any]) -> None:
        if self.request.POST.get(f"seen-{row.pk}") != _compute_mark(row):
            self._notify_overtaken(row)
            return
        outcome = self.action.run(row.pk, by=self.request.user.get_username(), using=self.using, **given)
        if outcome in (Outcome.OVERTAKEN, Outcome.RUNNING):
            self._notify_overtaken(row)
        elif outcome in self.action.done:
            self.admin.log_change(self.request, row, f"{self.action.label}: {given['reason']} [{outcome}]")
            level = messages.WARNING if outcome in UNDECIDED else messages.SUCCESS
            self._notify(level, row, self._explain(row, outcome))
        else:
            self._notify(messages.WARNING, row, self._explain(row, outcome))

    def _explain(self, row: IdempotencyKey, outcome: Outcome) -> str:
        if outcome is Outcome.ASKED and _is_left_alone(row):
            return _("It is unknown again, but there is no reconciler for %s in this process.") % row.operation
        if outcome is not Outcome.POSTPONED:
            return str(OUTCOMES[outcome])
        now = records.find(row.ref)
        if now is None:
            return str(OUTCOMES[Outcome.ABSENT])
        if self.action.polls and is_unattended(row):
            return _("There is no reconciler for %s in this process.") % row.operation
        left = now.grace_left if now.lease_left is None else now.lease_left
        wait = format_interval(max(left or 0, 0) + 1)
        return _("Not yet: a message may still be in flight. Nothing was changed; it can be done in %s.") % wait

    def _notify_overtaken(self, row: IdempotencyKey) -> None:
        now = records.find(row.ref)
        if now is None:
            self._notify(messages.WARNING, row, str(OUTCOMES[Outcome.ABSENT]))
            return
        text = _("This record changed to “%s” after you opened it. Nothing was saved; review it and try again.")
        self._notify(messages.WARNING, row, text % STATES[now.status].label)

    def _notify(self, level: int, row: IdempotencyKey, text: str) -> None:
        # In quotes, because the admin capitalizes the first letter of a message.
        messages.add_message(self.request, level, f"“{shorten_key(row.key)}”: {text}")

    def _build_back_url(self) -> str:
        site = self.admin.admin_site.name
        if len(self.rows) == 1:
            return record.build_url(self.rows[0].pk, site)
        return reverse("admin:django_idempotency_idempotencykey_changelist", current_app=site)


def _is_left_alone(row: IdempotencyKey) -> bool:
    """True if the record, as it is now, has no reconciler to ask."""
    now = records.load(row.pk, row.ref.using)
    return now is not None and is_unattended(now)


def _parse_ids(text: str) -> list[UUID]:
    try:
        return [UUID(part) for part in text.split(",")[:PAGE] if part]
    except ValueError:
        raise Http404 from None


def _compute_mark(row: IdempotencyKey) -> str:
    """Return a digest that changes with the status and the attempt, and does not reveal the token."""
    return sha256(f"{row.status} {row.attempt_token}".encode()).hexdigest()[:16]
