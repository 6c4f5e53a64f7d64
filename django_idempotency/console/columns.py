"""The columns of the record list."""

from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_idempotency.console.wording import format_age, shorten_key
from django_idempotency.core.states import Status
from django_idempotency.flow.unattended import lacks_reconciler
from django_idempotency.monitoring.units import format_interval

NO_RECONCILER: Final = gettext_lazy("waits for an operator, because its operation has no reconciler")


def render_moment(then: datetime, now: datetime) -> SafeString:
    """Return a time by its distance from now; the exact time is its tooltip."""
    exact = date_format(timezone.localtime(then) if timezone.is_aware(then) else then, "Y-m-d H:i:s")
    return format_html('<time datetime="{}" title="{}">{}</time>', then.isoformat(), exact, format_age(then, now))


def render_key(row: Any, url: str) -> SafeString:
    return format_html(
        '<a class="idem-key" href="{}" title="{}">{}</a> '
        '<button type="button" class="idem-copy" data-copy="{}" aria-label="{}" title="{}" hidden></button>',
        url,
        row.key,
        shorten_key(row.key),
        row.key,
        _("Copy the key"),
        _("Copy the key"),
    )


def render_work(row: Any) -> SafeString:
    """Return the operation and the principal."""
    return format_html('{}<br><span class="idem-quiet">{}</span>', row.operation, row.principal)


def format_attempts(row: Any) -> str:
    """Return how often it was run, and how often the reconciler asked about it."""
    if not row.reconcile_attempts:
        return str(row.attempts)
    text = ngettext("%(runs)d, %(polls)d check", "%(runs)d, %(polls)d checks", row.reconcile_attempts)
    return text % {"runs": row.attempts, "polls": row.reconcile_attempts}


def render_next(row: Any) -> SafeString:
    """Return what happens to the record next without a request, and when."""
    tone = "idem-late" if is_late(row) else "idem-calm"
    return format_html('<span class="{}">{}</span>', tone, describe_next(row))


def describe_next(row: Any) -> str:
    if row.status == Status.DEAD_LETTER:
        return _("waits for an operator")
    if row.status == Status.UNKNOWN and lacks_reconciler(row.operation, row.run_name, row.on_lost_lease):
        return str(NO_RECONCILER)
    if row.locked_until is not None:
        is_pending = row.status == Status.PENDING
        running, over = (_("pick-up: %s left"), _("pick-up overdue by %s")) if is_pending else _lease()
        return _format_countdown(row.locked_until - row.now, running, over)
    if row.reconcile_after is not None:
        left = row.reconcile_after - row.now
        return _format_countdown(left, _("reconciler check in %s"), _("reconciler check overdue by %s"))
    if row.expires_at is None:
        return _("never expires")
    left = row.expires_at - row.now
    if row.status == Status.EXPIRED:
        return _format_countdown(left, _("deleted in %s"), _("deletion overdue by %s"))
    return _format_countdown(left, _("expires in %s"), _("expired %s ago"))


def _lease() -> tuple[str, str]:
    return _("lease: %s left"), _("lease expired %s ago")


def _format_countdown(left: timedelta, ahead: str, behind: str) -> str:
    return ahead % format_interval(left) if left > timedelta(0) else behind % format_interval(-left, units=1)


def is_late(row: Any) -> bool:
    """True if something should have happened to the record already, or an operator has to act."""
    due = row.locked_until or row.reconcile_after
    return row.status == Status.DEAD_LETTER or (due is not None and due <= row.now)
