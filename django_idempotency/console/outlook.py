"""Who acts on a record next, and when; and which actions make sense. Pages and commands say the same."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.conf import conf
from django_idempotency.console.actions import Action
from django_idempotency.console.wording import PARTLY_DONE, STATES, quote
from django_idempotency.core.comparison import read_secret_id
from django_idempotency.core.links import docs_url
from django_idempotency.core.states import Status
from django_idempotency.core.transitions import Event
from django_idempotency.flow.settle import DoubtfulStep, doubtful_step
from django_idempotency.flow.unattended import (
    has_reconciler,
    is_continued,
    is_unattended,
    needs_person,
    waits_for_retry,
)
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.fingerprints import has_secret
from django_idempotency.monitoring.units import format_interval

# Of the runbooks; a record in any other state is no cause of an alert.
_SECTIONS: Final = {
    Status.PENDING: "idempotencyworkwaiting",
    Status.IN_PROGRESS: "idempotencyleasesexpire",
    Status.UNKNOWN: "idempotencyunknownold",
    Status.DEAD_LETTER: "idempotencydeadletters",
}
_UNREADABLE: Final = (ValueError, KeyError, TypeError)
_NO_RECONCILER: Final = gettext_lazy("waits for an operator, because its operation has no reconciler")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the state means, what happens next, whether it is late, and what a person can do about it."""

    meaning: str | Promise
    text: str
    is_late: bool
    section: str  # of the runbooks
    needs_verdict: bool  # nothing runs until it is known what happened
    can_be_asked: bool = True
    warning: str = ""  # why this process cannot tell a retry from another request
    has_written: bool = False  # its acceptance committed writes, which a retry of the client would make again

    def allows(self, action: Action) -> bool:
        """True unless the action would be rejected, or would let something happen a second time."""
        if action.event is Event.DISMISS and self.has_written:
            return False
        return not (action.polls and not self.can_be_asked) and not (action.ends_replays and self.warning)

    @property
    def runbook_url(self) -> str:
        """Where operators read what to do: in this project's runbook, or in the package's."""
        return conf.RUNBOOK_URL or docs_url("how-to/runbooks", self.section)


def describe_outlook(row: Any) -> Outlook:
    """Return who acts next and when; of an unknown outcome also the number of the try, or who is missing."""
    status = Status(row.status)
    outlook = Outlook(
        PARTLY_DONE if status is Status.FAILED_RETRYABLE and row.traced else STATES[status].meaning,
        describe_next(row),
        is_late(row),
        _SECTIONS.get(status, ""),
        needs_verdict=status in Status.IN_DOUBT,
        warning=describe_unreadable(row),
        has_written=row.wrote,
    )
    return _refine(outlook, row) if status is Status.UNKNOWN else outlook


def _refine(outlook: Outlook, row: Any) -> Outlook:
    """Say of an unknown outcome what only its policy and its progress tell."""
    if is_continued(row):
        meaning = _("The attempt was lost. The operation continues after the last step that is done.")
        section = "idempotencyresumingfails"
        return replace(outlook, meaning=meaning, section=section, needs_verdict=False, can_be_asked=False)
    is_restarted = waits_for_retry(row)
    if is_restarted:
        meaning = _("The attempt was lost. A retry of the client runs the work again.")
        outlook = replace(outlook, meaning=meaning, needs_verdict=False)
    if not is_left_alone(row):
        return replace(outlook, text=_count_try(outlook.text, row))
    if not is_restarted:
        outlook = replace(outlook, text=_describe_unattended(row), is_late=True)
    if not is_restarted or needs_person(row.operation, row.run_name, row.on_lost_lease):
        outlook = replace(outlook, section="idempotencyunattended")
    return replace(outlook, can_be_asked=False)


def describe_next(row: Any) -> str:
    """Return who acts next and when, from what a list reads of a record."""
    if row.status == Status.DEAD_LETTER:
        return _("waits for an operator")
    if row.status == Status.UNKNOWN:
        return _describe_unknown(row)
    if row.locked_until is not None:
        is_pending = row.status == Status.PENDING
        running, over = (_("pick-up: %s left"), _("pick-up overdue by %s")) if is_pending else _lease()
        return _format_countdown(row.locked_until - row.read_at, running, over)
    if row.expires_at is None:
        return _("never expires")
    left = row.expires_at - row.read_at
    if row.status == Status.EXPIRED:
        return _format_countdown(left, _("deleted in %s"), _("deletion overdue by %s"))
    return _format_countdown(left, _("expires in %s"), _("expired %s ago"))


def _lease() -> tuple[str, str]:
    return _("lease: %s left"), _("lease expired %s ago")


def _format_countdown(left: timedelta, ahead: str, behind: str) -> str:
    return ahead % format_interval(left) if left > timedelta(0) else behind % format_interval(-left, units=1)


def _describe_unknown(row: Any) -> str:
    if is_continued(row):
        return _describe_continuation(row)
    if has_reconciler(row.operation, row.run_name):
        left = row.reconcile_after - row.read_at
        return _format_countdown(left, _("reconciler check in %s"), _("reconciler check overdue by %s"))
    return _describe_wait(row) if waits_for_retry(row) else str(_NO_RECONCILER)


def _describe_wait(row: Any) -> str:
    """Return how long a retry may still come: without one, the record becomes a dead letter."""
    limit = conf.UNATTENDED_LIMIT
    if limit is None:
        return _("waits for a retry of the client")
    waited = row.read_at - (row.last_run_at or row.created_at)
    left = max((limit - waited).total_seconds(), row.grace_left)
    if left <= 0:
        return _("waits for a retry of the client, and is about to become a dead letter")
    return _("waits for a retry of the client, or becomes a dead letter in %s") % format_interval(left)


def is_late(row: Any) -> bool:
    """True if something should have happened to the record already, or an operator has to act."""
    if waits_for_retry(row) and not has_reconciler(row.operation, row.run_name):
        return False
    due = row.locked_until or row.reconcile_after
    return row.status == Status.DEAD_LETTER or (due is not None and due <= row.read_at)


def is_left_alone(row: IdempotencyKey) -> bool:
    """True if there is no reconciler to ask. Unreadable progress must not hide the rest of a record."""
    try:
        return is_unattended(row)
    except _UNREADABLE:
        return True


def find_step(row: IdempotencyKey) -> DoubtfulStep | None:
    """Return the step in doubt; None if there is none, or if the progress is unreadable."""
    try:
        return doubtful_step(row)
    except _UNREADABLE:
        return None


def describe_unreadable(row: Any) -> str:
    """Return why this process cannot tell a retry from another request, and what to do; empty if it can."""
    if not row.fingerprint or row.retention_over:
        return ""
    secret = read_secret_id(row.fingerprint)
    if secret is None:
        return _(
            "This process answers every request with this key with 409: a newer release wrote the fingerprint, and "
            "this one cannot tell a retry from another request. Deploy the newer release again."
        )
    if has_secret(secret):
        return ""
    text = _(
        "This process answers every request with this key with 409: it lacks the secret %(secret)s that made the "
        "fingerprint, and cannot tell a retry from another request. Add the old secret to IDEMPOTENCY['SECRETS']."
    )
    return text % {"secret": quote(secret)}


def describe_danger(action: Action, row: Any) -> str:
    """Return why this process must not end the record's replays; empty if it may, and for every other action."""
    warning = describe_unreadable(row) if action.ends_replays else ""
    return f"{warning} {_('Until then the record must not expire: a retry would run again.')}" if warning else ""


def describe_written(action: Action, row: Any) -> str:
    """Return why work cannot be marked as not executed; empty if it can, and for every other action."""
    if action.event is not Event.DISMISS or not row.wrote:
        return ""
    return _(
        "The acceptance of this work committed writes, and a retry of the client would make them again. Reset and "
        "retry reconciliation, or store a response."
    )


def _describe_unattended(row: Any) -> str:
    step = find_step(row)
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
    left = row.reconcile_after - row.read_at
    values = {"time": format_interval(abs(left)), "number": row.attempts + 1, "all": conf.ATTEMPTS}
    is_ahead = left.total_seconds() > 0
    if row.deferred:
        ahead = _("a worker continues it in %(time)s (attempt %(number)d of %(all)d)")
        behind = _("a worker should have continued it %(time)s ago (attempt %(number)d of %(all)d)")
    else:
        ahead = _("the resumer continues it in %(time)s (attempt %(number)d of %(all)d)")
        behind = _("the resumer should have continued it %(time)s ago (attempt %(number)d of %(all)d)")
    return (ahead if is_ahead else behind) % values
