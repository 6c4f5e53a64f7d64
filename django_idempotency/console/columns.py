"""What a row of the record list says."""

from datetime import datetime, timedelta
from typing import Any, Protocol

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_idempotency.console.wording import ago, duration, short
from django_idempotency.core.states import Status


class Told(Protocol):
    """A record with the database's time beside it."""

    now: datetime
    status: str
    locked_until: datetime | None
    reconcile_after: datetime | None
    expires_at: datetime | None


def moment(then: datetime, now: datetime) -> SafeString:
    """A time as people say it; the exact one is in its title."""
    exact = date_format(timezone.localtime(then) if timezone.is_aware(then) else then, "Y-m-d H:i:s")
    return format_html('<time datetime="{}" title="{}">{}</time>', then.isoformat(), exact, ago(then, now))


def key(row: Any, url: str) -> SafeString:
    return format_html(
        '<a class="idem-key" href="{}" title="{}">{}</a> '
        '<button type="button" class="idem-copy" data-copy="{}" aria-label="{}" title="{}" hidden></button>',
        url,
        row.key,
        short(row.key),
        row.key,
        _("Copy the key"),
        _("Copy the key"),
    )


def work(row: Any) -> SafeString:
    """What was asked for, and by whom."""
    return format_html('{}<br><span class="idem-quiet">{}</span>', row.operation, row.principal)


def attempts(row: Any) -> str:
    """How often it was run, and how often somebody was asked about it."""
    if not row.reconcile_attempts:
        return str(row.attempts)
    return _("%(runs)d, asked %(polls)d") % {"runs": row.attempts, "polls": row.reconcile_attempts}


def waits(row: Told) -> SafeString:
    """What happens to the record next by itself, and when."""
    return format_html('<span class="{}">{}</span>', "idem-late" if is_late(row) else "idem-calm", next_event(row))


def next_event(row: Told) -> str:
    if row.status == Status.DEAD_LETTER:
        return _("waits for a person")
    if row.locked_until is not None:
        pending = row.status == Status.PENDING
        running, over = (_("pick-up: %s left"), _("not picked up for %s")) if pending else _lease()
        return _countdown(row.locked_until - row.now, running, over)
    if row.reconcile_after is not None:
        return _countdown(row.reconcile_after - row.now, _("asked about in %s"), _("to be asked about, due %s ago"))
    if row.status == Status.EXPIRED and row.expires_at is not None:
        return _countdown(row.expires_at - row.now, _("deleted in %s"), _("to be deleted, due %s ago"))
    if row.expires_at is not None:
        return _countdown(row.expires_at - row.now, _("expires in %s"), _("expired %s ago"))
    return _("never expires")


def _lease() -> tuple[str, str]:
    return _("lease: %s left"), _("lease over for %s")


def _countdown(left: timedelta, ahead: str, behind: str) -> str:
    return ahead % duration(left) if left > timedelta(0) else behind % duration(-left)


def is_late(row: Told) -> bool:
    due = row.locked_until or row.reconcile_after
    return row.status == Status.DEAD_LETTER or (due is not None and due <= row.now)
