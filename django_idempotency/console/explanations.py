"""Why an action is not possible now, and what became of it: sentences for the operator."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_idempotency.console.actions import OUTCOMES, UNDECIDED, Action, list_offered
from django_idempotency.console.outlook import describe_danger, find_step, is_left_alone
from django_idempotency.console.wording import STATES, quote, shorten_key
from django_idempotency.core.states import Status
from django_idempotency.flow.settle import Outcome
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.units import format_interval
from django_idempotency.store import records

NAMED = 3  # records whose keys a summary names


def describe_refusal(action: Action, row: Any, user: Any) -> str:
    """Return the state that was found and what it allows; empty if the action is possible."""
    if row.status not in action.statuses:
        text = _("Its status is “%(status)s”, and this needs %(needed)s. It will be skipped. %(allowed)s")
        return text % {
            "status": STATES[Status(row.status)].label,
            "needed": _list_states(action),
            "allowed": describe_allowed(row, user),
        }
    if action.polls and is_left_alone(row):
        return describe_unattended(row)
    if danger := describe_danger(action, row):
        return danger
    if action.after_grace and row.grace_left > 0:
        text = _("The grace period has not passed: it can be done in %(wait)s.")
        return text % {"wait": format_interval(row.grace_left)}
    return ""


def describe_allowed(found: Any, user: Any) -> str:
    """Return which actions this user may take on a record as it was found."""
    labels = [quote(each.label) for each in list_offered(found.status, user) if not describe_danger(each, found)]
    if not labels:
        return _("Nothing can be done to it in this state.")
    return _("Possible now: %(actions)s.") % {"actions": get_text_list(labels, _("or"))}


def describe_unattended(row: IdempotencyKey) -> str:
    """Return that no reconciler can be asked about this record."""
    step = find_step(row)
    if step is None:
        return _("There is no reconciler for %(operation)s in this process.") % {"operation": row.operation}
    text = _("There is no reconciler for %(operation)s or its step %(step)s in this process.")
    return text % {"operation": row.run_name, "step": step.name}


def _list_states(action: Action) -> str:
    labels = [quote(state.label) for status, state in STATES.items() if status in action.statuses]
    return get_text_list(labels, _("or"))


class Summary:
    """What became of each record, told in one message."""

    def __init__(self, action: Action, request: HttpRequest) -> None:
        self.action, self.request = action, request
        self.found: dict[str, list[IdempotencyKey]] = {}
        self.level = messages.SUCCESS

    def add(self, row: IdempotencyKey, outcome: Outcome) -> None:
        """Add what an action did to a record."""
        if outcome in (Outcome.OVERTAKEN, Outcome.RUNNING):
            self.add_overtaken(row)
            return
        succeeded = outcome in self.action.done and outcome not in UNDECIDED
        self._add(row, self._explain(row, outcome), is_warning=not succeeded)

    def add_overtaken(self, row: IdempotencyKey) -> None:
        """Add that a record is not as the operator saw it."""
        now = records.find(row.ref)
        if now is None:
            self._add(row, str(OUTCOMES[Outcome.ABSENT]))
            return
        text = _("This record changed to “%(status)s” after you opened it. Nothing was saved. %(allowed)s")
        allowed = describe_allowed(now, self.request.user)
        self._add(row, text % {"status": STATES[now.status].label, "allowed": allowed})

    def add_refused(self, row: IdempotencyKey, why: str) -> None:
        """Add that an action was not even tried."""
        self._add(row, why)

    def add_time_used_up(self, row: IdempotencyKey) -> None:
        """Add that nothing was tried any more."""
        self._add(row, _("The time for one request was used up; try again."))

    def send(self) -> None:
        """Show one message, whatever the number of records."""
        parts = [self._summarize(text, rows) for text, rows in self.found.items()]
        messages.add_message(self.request, self.level, " ".join(parts))

    def _add(self, row: IdempotencyKey, text: str, *, is_warning: bool = True) -> None:
        self.found.setdefault(text, []).append(row)
        if is_warning:
            self.level = messages.WARNING

    def _summarize(self, text: str, rows: list[IdempotencyKey]) -> str:
        names = [quote(shorten_key(row.key)) for row in rows[:NAMED]]
        if len(rows) == 1:
            return _("%(key)s: %(what)s") % {"key": names[0], "what": text}
        more = len(rows) - len(names)
        if more:
            names.append(ngettext("%(count)d more", "%(count)d more", more) % {"count": more})
        count = len(rows)
        return ngettext("%(count)d record (%(keys)s): %(what)s", "%(count)d records (%(keys)s): %(what)s", count) % {
            "count": count,
            "keys": get_text_list(names, _("and")),
            "what": text,
        }

    def _explain(self, row: IdempotencyKey, outcome: Outcome) -> str:
        now = records.load(row.pk, row.ref.using)
        if now is None:
            return str(OUTCOMES[Outcome.ABSENT])
        if outcome is Outcome.ASKED and is_left_alone(now):
            text = _("It is unknown again, but there is no reconciler for %(operation)s in this process.")
            return text % {"operation": row.operation}
        if outcome is not Outcome.POSTPONED:
            return str(OUTCOMES[outcome])
        if self.action.polls and is_left_alone(row):
            return describe_unattended(row)
        left = now.grace_left if now.locked_until is None else (now.locked_until - now.read_at).total_seconds()
        text = _("Not yet: what was sent before may still arrive. Nothing was changed; it can be done in %(wait)s.")
        return text % {"wait": format_interval(max(left, 0) + 1)}
