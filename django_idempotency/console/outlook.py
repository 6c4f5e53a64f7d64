"""Who acts on a record next, and when; and what a person can do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _

from django_idempotency.conf import conf
from django_idempotency.console.actions import Action
from django_idempotency.console.columns import describe_next, is_late
from django_idempotency.console.wording import STATES
from django_idempotency.core.links import docs_url
from django_idempotency.core.states import Status
from django_idempotency.flow.settle import doubtful_step
from django_idempotency.flow.unattended import is_unattended
from django_idempotency.monitoring.units import format_interval

# Of the runbooks; a record in any other state is no cause of an alert.
_SECTIONS: Final = {
    Status.PENDING: "idempotencyworkwaiting",
    Status.IN_PROGRESS: "idempotencyleasesexpire",
    Status.UNKNOWN: "idempotencyunknownold",
    Status.DEAD_LETTER: "idempotencydeadletters",
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the state means, what happens next, whether it is late, and whether the reconciler can be asked."""

    text: str
    is_late: bool
    meaning: str | Promise
    is_unattended: bool = False
    is_continued: bool = False

    @property
    def can_be_asked(self) -> bool:
        return not (self.is_unattended or self.is_continued)


def describe_outlook(row: Any) -> Outlook:
    """Return who acts next and when, with the number of the try."""
    meaning = STATES[Status(row.status)].meaning
    if is_unattended(row):
        return Outlook(_describe_unattended(row), True, meaning, is_unattended=True)
    if row.status == Status.UNKNOWN and row.run_name and row.is_resumable:
        meaning = _("The attempt was lost. The operation continues after the last step that is done.")
        return Outlook(_describe_continuation(row), is_late(row), meaning, is_continued=True)
    text = describe_next(row)
    return Outlook(_count_try(text, row) if row.status == Status.UNKNOWN else text, is_late(row), meaning)


def runbook_url(row: Any, outlook: Outlook) -> str:
    """Return where operators read what to do about the record: in this project's runbook, or in the package's."""
    return conf.RUNBOOK_URL or docs_url("how-to/runbooks", _choose_section(row, outlook))


def _choose_section(row: Any, outlook: Outlook) -> str:
    if outlook.is_unattended:
        return "idempotencyunattended"
    if outlook.is_continued:
        return "idempotencyresumingfails"
    return _SECTIONS.get(Status(row.status), "")


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


def list_advice(row: Any, outlook: Outlook, offered: Sequence[Action]) -> list[Action]:
    """Return the actions that each follow from a finding, where a person has to find out what happened."""
    return [] if outlook.is_continued or row.status not in Status.IN_DOUBT else list(offered)
