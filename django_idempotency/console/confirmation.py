"""Between a button and the change: what will happen, what can go wrong, why, and then what became of it."""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from time import monotonic
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from django_idempotency.conf import conf
from django_idempotency.console import record
from django_idempotency.console.actions import BY_NAME, Action
from django_idempotency.console.keyset import PAGE
from django_idempotency.console.wording import STATES, badge, duration, short
from django_idempotency.flow.registry import reconciled_operations
from django_idempotency.flow.settle import Outcome
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import records
from django_idempotency.store.database import alias

SAID: Final[dict[Outcome, str | Promise]] = {
    Outcome.LANDED: gettext_lazy("It happened: the answer is stored and every retry gets it."),
    Outcome.NOT_EXECUTED: gettext_lazy("It did not happen: the next request with this key runs."),
    Outcome.INCONCLUSIVE: gettext_lazy("The reconciler could not tell; it asks again later."),
    Outcome.DEAD_LETTER: gettext_lazy("The reconciler could not tell and has no tries left: it is a dead letter now."),
    Outcome.RESUMABLE: gettext_lazy("Nothing is in doubt any more: the resumer goes on with this operation."),
    Outcome.TOO_LATE: gettext_lazy(
        "The record had ended as failed, and that answer stays. Somebody has to book what happened, or take it back."
    ),
    Outcome.RUNNING: gettext_lazy("An attempt is running, and what it does comes first. Nothing was changed."),
    Outcome.ASKED: gettext_lazy("The reconciler asks about it at its next run."),
    Outcome.SENT: gettext_lazy("A worker was asked for again."),
    Outcome.EXPIRED: gettext_lazy("Expired: the next request with this key runs as new."),
    Outcome.ABSENT: gettext_lazy("There is no such record any more."),
}
IN_VAIN: Final = (Outcome.INCONCLUSIVE, Outcome.POSTPONED, Outcome.DEAD_LETTER)  # carried out, and nobody knows more


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the records that were chosen, as the person saw it."""

    row: IdempotencyKey
    fits: bool
    seen: str
    grace: str

    @property
    def badge(self) -> SafeString:
        return badge(self.row.status)

    @property
    def key(self) -> str:
        return short(self.row.key)


def chosen(name: str, admin: Any, request: HttpRequest, _rows: Any) -> HttpResponse:
    """From the list's menu to the page that asks. Only the rows that were ticked count."""
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)[:PAGE]
    return HttpResponseRedirect(address(name, ",".join(ticked), admin.admin_site.name))


def address(name: str, records: str, site: str) -> str:
    return (
        f"{reverse('admin:django_idempotency_act', args=[name], current_app=site)}?records={records.replace('-', '')}"
    )


def as_view(admin: Any) -> Any:
    """Without a transaction around it: a reconciler's call must not hold one open."""

    @require_http_methods(["GET", "HEAD", "POST"])
    def view(request: HttpRequest, name: str) -> HttpResponse:
        action = BY_NAME.get(name)
        if action is None:
            raise Http404
        if not admin.has_view_permission(request) or not request.user.has_perm(action.permission):
            raise PermissionDenied
        return _Confirmation(admin, request, action).answer()

    return opt_out_of_atomic_requests(admin.admin_site.admin_view(view))


class _Confirmation:
    """One visit to the page."""

    def __init__(self, admin: Any, request: HttpRequest, action: Action) -> None:
        self.admin, self.request, self.action = admin, request, action
        self.using = alias()
        self.rows = list(admin.get_queryset(request).filter(pk__in=_ids(request.GET.get("records", ""))))

    def answer(self) -> HttpResponse:
        if not self.rows:
            raise Http404(_("There is no such record."))
        form = self.action.form(self.request.POST if self.request.method == "POST" else None)
        if form.is_valid():
            return self.act(form.cleaned_data)
        return self.page(form)

    def page(self, form: Any) -> HttpResponse:
        choices = [self._choice(row) for row in self.rows]
        context = {
            **self.admin.page_context(self.request),
            "title": self.action.label,
            "action": self.action,
            "choices": choices,
            "ready": any(choice.fits for choice in choices),
            "form": form,
            "back": self._back(),
        }
        return TemplateResponse(self.request, "django_idempotency/console/confirm.html", context)

    def _choice(self, row: Any) -> Choice:
        fits = row.status in self.action.statuses
        waits = fits and self.action.after_grace and row.grace_until is not None and row.grace_until > row.now
        return Choice(row, fits and not waits, _mark(row), duration(row.grace_until - row.now) if waits else "")

    def act(self, given: dict[str, Any]) -> HttpResponse:
        until = monotonic() + conf.RECONCILE_LIMIT.total_seconds()
        for row in self.rows:
            if monotonic() >= until:
                self._say(messages.WARNING, row, _("There was no time left for it; ask again."))
                continue
            self._one(row, given)
        return HttpResponseRedirect(self._back())

    def _one(self, row: IdempotencyKey, given: dict[str, Any]) -> None:
        if self.request.POST.get(f"seen-{row.pk}") != _mark(row):
            self._overtaken(row)
            return
        outcome = self.action.run(row.pk, by=self.request.user.get_username(), using=self.using, **given)
        if outcome in (Outcome.OVERTAKEN, Outcome.RUNNING):
            self._overtaken(row)
        elif outcome in self.action.done:
            self.admin.log_change(self.request, row, f"{self.action.label}: {given['reason']} [{outcome}]")
            level = messages.WARNING if outcome in IN_VAIN else messages.SUCCESS
            self._say(level, row, self._said(row, outcome))
        else:
            self._say(messages.WARNING, row, self._said(row, outcome))

    def _said(self, row: IdempotencyKey, outcome: Outcome) -> str:
        now = records.find(row.ref) if outcome is Outcome.POSTPONED else None
        if now is None:
            return str(SAID[outcome])
        if self.action.polls and not row.run_name and row.operation not in reconciled_operations():
            return _("There is nobody to ask: this process has no reconciler for %s.") % row.operation
        left = now.grace_left if now.lease_left is None else now.lease_left
        wait = duration(timedelta(seconds=max(left or 0, 0) + 1))
        return _("Not yet: a message may still be on its way. It stays as it is; it can be done in %s.") % wait

    def _overtaken(self, row: IdempotencyKey) -> None:
        now = records.find(row.ref)
        if now is None:
            self._say(messages.WARNING, row, str(SAID[Outcome.ABSENT]))
            return
        said = _("Somebody was quicker: it is “%s” now. Nothing was changed; look at it again before you decide.")
        self._say(messages.WARNING, row, said % STATES[now.status])

    def _say(self, level: int, row: IdempotencyKey, text: str) -> None:
        # In quotes, because the admin writes a message's first letter large.
        messages.add_message(self.request, level, f"“{short(row.key)}”: {text}")

    def _back(self) -> str:
        site = self.admin.admin_site.name
        if len(self.rows) == 1:
            return record.url(self.rows[0].pk, site)
        return reverse("admin:django_idempotency_idempotencykey_changelist", current_app=site)


def _ids(text: str) -> list[UUID]:
    try:
        return [UUID(part) for part in text.split(",")[:PAGE] if part]
    except ValueError:
        raise Http404 from None


def _mark(row: IdempotencyKey) -> str:
    """Tells whether this is still the attempt that the person looked at, without telling the token."""
    return sha256(f"{row.status} {row.attempt_token}".encode()).hexdigest()[:16]
