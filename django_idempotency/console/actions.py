"""What an operator may do: the permission it takes, from which states, what it does and how it can end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_idempotency.console.forms import LandedForm, ReasonForm, make_reply
from django_idempotency.core.audit import Kind
from django_idempotency.core.replies import Headers
from django_idempotency.core.states import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event
from django_idempotency.flow.resolve import ask, expire, requeue, resolve, try_again
from django_idempotency.flow.settle import Landed, NotLanded, Outcome


@dataclass(frozen=True, slots=True)
class Trace:
    """How the audit event that an action writes is shown in the timeline."""

    kind: Kind
    title: str | Promise
    tone: str


@dataclass(frozen=True, slots=True)
class Action:
    """One button. A new action is one row below, its function in `flow.resolve` and its permission in the model."""

    name: str  # in the address; the permission has the same name, with underscores
    option: str  # of `idempotency_resolve`; empty where another command does it
    label: str | Promise
    finding: str | Promise  # what a person has found out who takes it
    event: Event  # the row of the table that is carried out
    sentence: str | Promise
    risk: str | Promise
    run: Callable[..., Outcome]
    done: tuple[Outcome, ...]
    trace: Trace | None = None
    dangerous: bool = False
    after_grace: bool = False
    polls: bool = False
    ends_replays: bool = False  # a retry is a new request from then on
    across: bool = False  # may be done to all records of a filter at once
    form: type[ReasonForm] = ReasonForm

    @property
    def permission(self) -> str:
        return f"django_idempotency.{self.name.replace('-', '_')}"

    @property
    def statuses(self) -> frozenset[Status]:
        """The states from which the table allows it."""
        rows = [row for row in TRANSITIONS if row.event is self.event and row.target is not Edge.SAME]
        return frozenset[Status]().union(*(row.sources for row in rows))


def _landed(
    record: UUID,
    *,
    status: int,
    content_type: str,
    body: str,
    headers: Headers = (),
    no_body: bool = False,
    **who: Any,
) -> Outcome:
    reply = make_reply(status, content_type, headers, body)
    return resolve(record, Landed(reply, ends_operation=True), operator=True, **who)


def _not_executed(record: UUID, **who: Any) -> Outcome:
    return resolve(record, NotLanded(), operator=True, **who)


OUTCOMES: Final[Mapping[Outcome, str | Promise]] = {  # what the operator reads afterwards
    Outcome.LANDED: _("Settled as succeeded: the response is stored and every retry gets it."),
    Outcome.NOT_EXECUTED: _("Settled as not executed: the next request with this key runs."),
    Outcome.INCONCLUSIVE: _("The reconciler could not tell; it asks again later."),
    Outcome.DEAD_LETTER: _("The reconciler could not tell and has no tries left: it is a dead letter now."),
    Outcome.RESUMABLE: _("No step is in doubt any more: the resumer continues this operation."),
    Outcome.TOO_LATE: _(
        "The record ended as failed, and that response stays. Book what happened in your own tables, or undo it."
    ),
    Outcome.RUNNING: _("An attempt is running and takes precedence. Nothing was changed."),
    Outcome.ASKED: _("The reconciler asks about it at its next run."),
    Outcome.SENT: _("Re-queued: a message was sent to the workers."),
    Outcome.EXPIRED: _("Expired: the next request with this key runs as new."),
    Outcome.ABSENT: _("This record no longer exists."),
}
UNDECIDED: Final = (Outcome.INCONCLUSIVE, Outcome.POSTPONED, Outcome.DEAD_LETTER)  # carried out without a result

ACTIONS: Final = (
    Action(
        "ask-reconciler",
        "",
        _("Ask the reconciler now"),
        _("You want to know now"),
        Event.INCONCLUSIVE,
        _("The operation's reconciler asks the provider at once; its verdict is applied under its own rules."),
        _("An inconclusive verdict counts as one of its tries, and the last one makes the record a dead letter."),
        ask,
        (
            Outcome.LANDED,
            Outcome.NOT_EXECUTED,
            Outcome.INCONCLUSIVE,
            Outcome.POSTPONED,
            Outcome.DEAD_LETTER,
            Outcome.RESUMABLE,
        ),
        Trace(Kind.ASKED, _("The reconciler was asked by an operator"), "move"),
        polls=True,
    ),
    Action(
        "resolve-landed",
        "--landed",
        _("Mark as succeeded and store the response"),
        _("The provider did it"),
        Event.EVIDENCE,
        _("The record becomes completed, and every retry of the client gets the response that you enter here."),
        _(
            "This stores the response and makes no domain writes: a payment that is missing in your own tables stays "
            "missing. Make those writes first."
        ),
        _landed,
        (Outcome.LANDED,),
        dangerous=True,
        form=LandedForm,
    ),
    Action(
        "resolve-not-executed",
        "--not-executed",
        _("Mark as not executed (allow retry)"),
        _("The provider has no trace of it, and no request can still be in flight"),
        Event.DISMISS,
        _(
            "The client's next request with this key runs the work; an operation continues with the step that was in "
            "doubt. Work for a worker waits until a client requests it again: to have it done now, reset and retry "
            "reconciliation instead."
        ),
        _("If it did happen after all, it happens a second time. This is rejected until the grace period has passed."),
        _not_executed,
        (Outcome.NOT_EXECUTED, Outcome.RESUMABLE),
        Trace(Kind.DISMISSED, _("Marked as not executed by an operator"), "good"),
        dangerous=True,
        after_grace=True,
        across=True,
    ),
    Action(
        "try-again",
        "--try-again",
        _("Reset and retry reconciliation"),
        _("The provider was down and is back"),
        Event.TRY_AGAIN,
        _("The record becomes unknown again, and the reconciler asks about it with all its tries at its next run."),
        _("If the provider still cannot tell, the record becomes a dead letter again when the tries are used up."),
        try_again,
        (Outcome.ASKED,),
        Trace(Kind.RESET, _("All tries were given back by an operator"), "move"),
        across=True,
    ),
    Action(
        "enqueue",
        "--enqueue",
        _("Re-queue"),
        _("No worker picks up the work"),
        Event.ENQUEUE,
        _("Another message is sent for work that no worker has picked up."),
        _("Only one worker can win the record, so a second message does no harm. Rejected while one may be in flight."),
        requeue,
        (Outcome.SENT,),
        Trace(Kind.REQUEUED, _("Re-queued by an operator"), "move"),
    ),
    Action(
        "expire-now",
        "--expire",
        _("Expire now"),
        _("The stored response is wrong and must go"),
        Event.EXPIRE_NOW,
        _("The stored response is not replayed any more, and the next request with this key runs as new."),
        _("A client that retries makes the effect happen a second time."),
        expire,
        (Outcome.EXPIRED,),
        Trace(Kind.EXPIRED, _("Expired by an operator"), "bad"),
        dangerous=True,
        ends_replays=True,
    ),
)
BY_NAME: Final = {action.name: action for action in ACTIONS}


def list_allowed(user: Any) -> list[Action]:
    """Return the actions for which this user has the permission."""
    return [action for action in ACTIONS if user.has_perm(action.permission)]


def list_offered(status: str, user: Any) -> list[Action]:
    """Return the actions that this user may take on a record in this state."""
    return [action for action in list_allowed(user) if status in action.statuses]
