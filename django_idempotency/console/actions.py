"""What an operator may do: which right it takes, from which states, what it does and what can go wrong with it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_idempotency.console.forms import LandedForm, ReasonForm
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event
from django_idempotency.flow.resolve import ask, enqueue, expire, resolve, try_again
from django_idempotency.flow.settle import Landed, NotLanded, Outcome


@dataclass(frozen=True, slots=True)
class Action:
    """One button."""

    name: str  # in the address; the right is called the same, with underscores
    label: str | Promise
    event: Event  # the row of the table that is carried out
    sentence: str | Promise
    risk: str | Promise
    run: Callable[..., Outcome]
    done: tuple[Outcome, ...]
    dangerous: bool = False
    after_grace: bool = False
    polls: bool = False
    form: type[ReasonForm] = ReasonForm

    @property
    def permission(self) -> str:
        return f"django_idempotency.{self.name.replace('-', '_')}"

    @property
    def statuses(self) -> frozenset[Status]:
        """Where the table lets it begin."""
        rows = [row for row in TRANSITIONS if row.event is self.event and row.target is not Edge.SAME]
        return frozenset[Status]().union(*(row.sources for row in rows))


def _landed(record: UUID, *, status: int, content_type: str, body: str, **who: Any) -> Outcome:
    headers = (("Content-Type", content_type),) if body else ()
    return resolve(record, Landed(Reply(status, headers, body.encode())), operator=True, **who)


def _not_executed(record: UUID, **who: Any) -> Outcome:
    return resolve(record, NotLanded(), operator=True, **who)


ACTIONS: Final = (
    Action(
        "ask-reconciler",
        _("Ask the reconciler now"),
        Event.INCONCLUSIVE,
        _("The operation's reconciler asks the other side at once; its verdict is carried out under its own rules."),
        _("An inconclusive answer counts as one of its tries, and the last one makes the record a dead letter."),
        ask,
        (
            Outcome.LANDED,
            Outcome.NOT_EXECUTED,
            Outcome.INCONCLUSIVE,
            Outcome.POSTPONED,
            Outcome.DEAD_LETTER,
            Outcome.RESUMABLE,
        ),
        polls=True,
    ),
    Action(
        "resolve-landed",
        _("It happened: store the answer"),
        Event.EVIDENCE,
        _("The record becomes completed, and every retry of the client gets the answer that you enter here."),
        _(
            "This stores the answer and makes no domain writes: a payment that is missing in your own tables stays "
            "missing. Make those writes first."
        ),
        _landed,
        (Outcome.LANDED,),
        dangerous=True,
        form=LandedForm,
    ),
    Action(
        "resolve-not-executed",
        _("It did not happen"),
        Event.DISMISS,
        _(
            "The client's next request with this key runs the work; an operation goes on with the step that was in "
            "doubt. Work that was handed to a worker waits until somebody asks for it again: to have it done, try "
            "again instead."
        ),
        _("If it did happen after all, it happens a second time. This is refused before the grace period has passed."),
        _not_executed,
        (Outcome.NOT_EXECUTED, Outcome.RESUMABLE),
        dangerous=True,
        after_grace=True,
    ),
    Action(
        "try-again",
        _("Try again: give back all tries"),
        Event.TRY_AGAIN,
        _("The record becomes unknown again, and the reconciler asks about it with all its tries at its next run."),
        _("If the other side still cannot tell, the record is a dead letter again when the tries are used up."),
        try_again,
        (Outcome.ASKED,),
    ),
    Action(
        "enqueue",
        _("Ask for a worker again"),
        Event.ENQUEUE,
        _("A worker is asked once more to take up the work that nobody has picked up."),
        _("Only one worker can win the record, so a second message does no harm; refused while one may be on its way."),
        enqueue,
        (Outcome.SENT,),
    ),
    Action(
        "expire-now",
        _("Expire now"),
        Event.EXPIRE_NOW,
        _("The stored answer is given to nobody any more, and the next request with this key runs as new."),
        _("A client that retries makes the effect happen a second time."),
        expire,
        (Outcome.EXPIRED,),
        dangerous=True,
    ),
)
BY_NAME: Final = {action.name: action for action in ACTIONS}


def allowed(user: Any) -> list[Action]:
    """What this user may do."""
    return [action for action in ACTIONS if user.has_perm(action.permission)]


def offered(status: str, user: Any) -> Iterable[Action]:
    """What this user may do with a record in this state."""
    return [action for action in allowed(user) if status in action.statuses]
