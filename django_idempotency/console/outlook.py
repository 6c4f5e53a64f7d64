"""Who acts on a record next, and when; and what a person can do about it."""

from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.conf import conf
from django_idempotency.console.columns import describe_next, is_late
from django_idempotency.core.links import docs_url
from django_idempotency.core.states import Status
from django_idempotency.flow.settle import doubtful_step
from django_idempotency.flow.unattended import is_unattended
from django_idempotency.monitoring.units import format_interval

# The advice of the page on the admin, as data: what was found out, and the name of the action that follows.
RUNBOOK: Final[tuple[tuple[str | Promise, str], ...]] = (
    (gettext_lazy("The provider did it"), "resolve-landed"),
    (
        gettext_lazy("The provider has no trace of it, and no request can still be in flight"),
        "resolve-not-executed",
    ),
    (gettext_lazy("The provider was down and is back"), "try-again"),
    (gettext_lazy("You want to know now"), "ask-reconciler"),
    (gettext_lazy("No worker picks up deferred work"), "enqueue"),
    (gettext_lazy("The stored response is wrong and must go"), "expire-now"),
)
OPEN_TO_PEOPLE: Final = (Status.UNKNOWN, Status.DEAD_LETTER)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What happens next, whether it is late or needs a person, and whether nobody will act."""

    text: str
    is_late: bool
    is_unattended: bool


def describe_outlook(row: Any) -> Outlook:
    """Return who acts next and when, with the number of the try."""
    if is_unattended(row):
        return Outlook(_describe_unattended(row), True, True)
    text = describe_next(row)
    if row.status == Status.UNKNOWN:
        text = _describe_continuation(row) if row.run_name and row.is_resumable else _count_try(text, row)
    return Outlook(text, is_late(row), False)


def runbook_url() -> str:
    """Return where this project's operators read what to do."""
    return conf.RUNBOOK_URL or docs_url("how-to/admin", "something-is-red-where-to-begin")


def _describe_unattended(row: Any) -> str:
    step = doubtful_step(row)
    if step is None:
        text = _("No reconciler is registered for %(operation)s. Settle it by hand.")
        return text % {"operation": row.operation or row.scope}
    text = _("No reconciler is registered for %(operation)s or its step %(step)s. Settle it by hand.")
    return text % {"operation": row.run_name, "step": step.name}


def _count_try(text: str, row: Any) -> str:
    return _("%(what)s (try %(number)d of %(all)d)") % {
        "what": text,
        "number": row.reconcile_attempts + 1,
        "all": conf.RECONCILE_TRIES,
    }


def _describe_continuation(row: Any) -> str:
    """Return when an operation is continued, whose steps so far are certain."""
    left = row.reconcile_after - row.now
    values = {"time": format_interval(abs(left)), "number": row.attempts + 1, "all": conf.ATTEMPTS}
    is_ahead = left.total_seconds() > 0
    if row.deferred:
        ahead = _("a worker continues it in %(time)s (attempt %(number)d of %(all)d)")
        behind = _("a worker should have continued it %(time)s ago (attempt %(number)d of %(all)d)")
    else:
        ahead = _("the resumer continues it in %(time)s (attempt %(number)d of %(all)d)")
        behind = _("the resumer should have continued it %(time)s ago (attempt %(number)d of %(all)d)")
    return (ahead if is_ahead else behind) % values
