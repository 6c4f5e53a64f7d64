"""What settles an unknown outcome: the verdicts, the doubt that they are about, and the change that each one makes."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from django.db import Error, transaction
from django.dispatch import Signal

from django_idempotency import signals
from django_idempotency.conf import conf
from django_idempotency.core.audit import Kind
from django_idempotency.core.links import docs_url
from django_idempotency.core.progress import Moment, Progress
from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import InsideTransaction
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce, logger
from django_idempotency.store import events, jobs, limits, verdicts
from django_idempotency.store.continuity import Continuity
from django_idempotency.store.operations import Continuation


@dataclass(frozen=True, slots=True)
class Landed:
    """It happened, error responses included: the external service knows the request.

    `write` makes the domain writes that are missing. The response is `reply`, or what `write` returns. Evidence that
    names the downstream key of a step in doubt is about that step: say `StepLanded`, or `ends_operation=True` here.
    """

    reply: Reply | None = None
    write: Callable[[], Reply | None] | None = None
    ends_operation: bool = False

    def settle(self) -> Reply:
        """Make the writes, and return the response to store."""
        made = self.write() if self.write is not None else None
        reply = made or self.reply
        if reply is None:
            raise ValueError("Landed needs a reply: pass one, or return one from `write`.")
        return reply


@dataclass(frozen=True, slots=True)
class StepLanded:
    """The effect whose outcome was unknown happened. `result` is JSON: what the effect would have returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class NotLanded:
    """It did not happen. For an operation with an effect in doubt: that effect did not."""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """It cannot be told yet. The reconciler asks again after `retry_in` (seconds or a timedelta), or a random pause."""

    retry_in: timedelta | float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.retry_in, timedelta | float | int | None):
            raise TypeError(f"retry_in must be a timedelta or a number of seconds; it is {self.retry_in!r}.")
        if not isinstance(self.reason, str):
            raise TypeError(f"reason must be a text; it is {self.reason!r}.")


Verdict: TypeAlias = Landed | StepLanded | NotLanded | Inconclusive


class Outcome(StrEnum):
    """What became of a record, or of what a person asked for."""

    LANDED = "landed"
    NOT_EXECUTED = "not_executed"
    POSTPONED = "postponed"  # too early, or no reconciler to ask; not counted as a try
    INCONCLUSIVE = "inconclusive"
    DEAD_LETTER = "dead_letter"
    OVERTAKEN = "overtaken"  # the record changed meanwhile, or the verdict is about a step that is not in doubt
    TOO_LATE = "too_late"  # it landed, but the record had ended as failed: a person has to look
    RUNNING = "running"  # an attempt is running: deliver again later
    RESUMABLE = "resumable"  # no step of the operation is in doubt any more: the resumer or a retry continues it
    SENT = "sent"  # deferred work: another message was sent to a worker
    ASKED = "asked"  # the reconciler will ask at once
    EXPIRED = "expired"  # the response is not replayed any more
    ABSENT = "absent"  # there is no such record


class Overtaken(Exception):
    """The record was settled before this verdict arrived; the verdict's writes roll back."""


@dataclass(frozen=True, slots=True)
class DoubtfulStep:
    """The effect of an operation that began and whose end was not seen, as it was read."""

    name: str
    key: str  # the downstream key that was sent
    progress: Progress
    steps_done: int
    settled: Moment | None  # what a verdict about it writes as its end

    def landed(self, result: Any) -> Continuation:
        """Continue with the effect's result. Raises if the result is not JSON."""
        return self._from(self.progress.mark_done(self.name, result, self.settled))

    def not_executed(self) -> Continuation:
        """Continue without the effect's mark, so that it is called again."""
        return self._from(self.progress.drop_last())

    def _from(self, progress: Progress) -> Continuation:
        return Continuation(self.name, uuid4(), progress.dump(), progress.recovery_point, self.steps_done)


def doubtful_step(row: IdempotencyKey) -> DoubtfulStep | None:
    """Return the step that a record waits for; None if it waits for none."""
    if not row.progress:
        return None
    progress = Progress.load(row.progress)
    name = progress.step_in_doubt
    settled = Moment(int(row.age * 1000), 0) if hasattr(row, "read_at") else None
    return None if name is None else DoubtfulStep(name, row.derive(name), progress, row.steps_done, settled)


def finished_step_keys(row: IdempotencyKey) -> list[str]:
    """Return the downstream keys of the steps that are done."""
    return [row.derive(name) for name in Progress.load(row.progress).finished] if row.progress else []


@dataclass(frozen=True, slots=True)
class Doubt:
    """A record with an unknown outcome, as it was read before anything was found out about it.

    A verdict counts for the attempt that holds this token, and for no later one.
    """

    row: IdempotencyKey
    token: UUID

    @classmethod
    def of(cls, row: IdempotencyKey | None) -> "Doubt | None":
        """Return the doubt about a record; None if its outcome is not unknown."""
        if row is None or row.status != Status.UNKNOWN or row.attempt_token is None:
            return None
        return cls(row, row.attempt_token)

    @property
    def ref(self) -> Ref:
        return self.row.ref


def settle_as_landed(
    ref: Ref, verdict: Landed, kind: Kind, store: Callable[[Reply], bool], *, actor: str, reason: str = ""
) -> None:
    """Make the domain writes and complete the record in one transaction; Overtaken if the record has changed.

    After a deadlock it runs again, unless the caller has a transaction open: then only the caller can do so.
    """
    tries = 1 if limits.in_transaction(ref.using) else limits.TRIES
    for remaining in reversed(range(tries)):
        try:
            with transaction.atomic(using=ref.using), Continuity(ref.using) as continuity:
                reply = verdict.settle()
                continuity.prove()
                if not store(reply):
                    raise Overtaken
                events.write(ref, kind, actor=actor, reason=reason)
            return
        except Error as error:
            if not (remaining and limits.may_repeat(error)):
                raise


def make_dead_letter(
    ref: Ref, token: UUID, cap: int, *, actor: str, reason: str, details: Mapping[str, Any] | None = None
) -> Outcome:
    """Make the record a dead letter: asking, or running, has been tried too often."""
    change = partial(verdicts.give_up, ref, token, cap)
    if not events.audit(change, ref, Kind.DEAD_LETTER, actor=actor, reason=reason, details=details or {}):
        return Outcome.OVERTAKEN
    return tell_dead_letter(ref, reason)


def end_waiting(ref: Ref, reply: Reply) -> str:
    """End work that no worker picked up: as failed if it had no effect, else as a dead letter. Return what to count."""
    if jobs.abandon(ref, reply):
        return "abandoned"
    reason = "no worker picked it up, and a part of its effect may be there"
    if not events.audit(partial(jobs.give_up_waiting, ref), ref, Kind.DEAD_LETTER, actor="reaper", reason=reason):
        return ""
    return tell_dead_letter(ref, reason).value


def tell_dead_letter(ref: Ref, reason: str) -> Outcome:
    """Report a record that a person has to settle."""
    page = docs_url("how-to/runbooks", "idempotencydeadletters")
    text = "Idempotency record %s became a dead letter (%s): a person has to settle it. See %s"
    logger.error(text, ref.id, reason, page)
    announce(signals.dead_lettered, record=ref.id, using=ref.using)
    return Outcome.DEAD_LETTER


def announce_committed(signal: Signal, using: str, **payload: Any) -> None:
    """Send a signal once the change is committed, which the caller's own transaction may put off."""
    try:
        limits.inside_test_case(using)
    except InsideTransaction:
        with transaction.atomic(using=using, savepoint=False):  # without autocommit, hooks are taken only in a block
            transaction.on_commit(partial(announce, signal, using=using, **payload), using=using, robust=True)
    else:
        announce(signal, using=using, **payload)


def backoff(tries: int) -> float:
    """Return seconds to wait, with full jitter: a thousand doubts of one outage must not ask in step."""
    longest = conf.RECONCILE_BACKOFF_MAX.total_seconds()
    ceiling = min(longest, conf.RECONCILE_BACKOFF.total_seconds() * 2 ** min(tries, 32))
    return max(1.0, random.uniform(0, ceiling))  # noqa: S311 - jitter, not a secret
