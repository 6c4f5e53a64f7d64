"""The columns of the record list."""

from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_idempotency.console.outlook import describe_next, is_late
from django_idempotency.console.wording import format_age, shorten_key


def render_moment(then: datetime, now: datetime) -> SafeString:
    """Return a time by its distance from now; the exact time is its tooltip."""
    exact = date_format(timezone.localtime(then) if timezone.is_aware(then) else then, "Y-m-d H:i:s")
    return format_html('<time datetime="{}" title="{}">{}</time>', then.isoformat(), exact, format_age(then, now))


def render_key(row: Any, url: str) -> SafeString:
    title = (
        _("The whole key is only shown to users with the permission to view content.") if row.key_is_cut else row.key
    )
    link = format_html('<a class="idem-key" href="{}" title="{}">{}</a>', url, title, shorten_key(row.key))
    if row.key_is_cut:
        return link
    button = '{} <button type="button" class="idem-copy" data-copy="{}" aria-label="{}" title="{}" hidden></button>'
    return format_html(button, link, row.key, _("Copy the key"), _("Copy the key"))


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
