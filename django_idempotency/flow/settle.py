"""What settles a doubt: the verdicts, and the transaction in which one is carried out."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from django.db import Error, transaction
from django.dispatch import Signal

from django_idempotency.conf import conf
from django_idempotency.core.decisions import Record, derived_key
from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import InsideTransaction
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce
from django_idempotency.store import events, limits
from django_idempotency.store.operations import GoOn


@dataclass(frozen=True, slots=True)
class Landed:
    """It happened, refusals included: the other side knows the request.

    `write` makes the domain writes that are missing. The answer is `reply`, or what `write` returns.
    """

    reply: Reply | None = None
    write: Callable[[], Reply | None] | None = None

    def settle(self) -> Reply:
        """Make the writes; the answer to store."""
        made = self.write() if self.write is not None else None
        reply = made or self.reply
        if reply is None:
            raise ValueError("Landed needs a reply: give one, or return one from write.")
        return reply


@dataclass(frozen=True, slots=True)
class StepLanded:
    """The step of an operation that was in doubt happened. `result` is JSON: what its effect would have returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class NotLanded:
    """It did not happen. About an operation with a step in doubt: that step did not."""


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """Nobody can tell yet. Asked again in `retry_in`, a number being seconds, or after a growing random pause."""

    retry_in: timedelta | float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.retry_in, timedelta | float | int | None):
            raise TypeError(f"retry_in must be a timedelta or a number of seconds; it is {self.retry_in!r}.")
        if not isinstance(self.reason, str):
            raise TypeError(f"reason must be a text; it is {self.reason!r}.")


Verdict: TypeAlias = Landed | StepLanded | NotLanded | Inconclusive


class Outcome(StrEnum):
    """What became of a doubt, or of what a person asked for."""

    LANDED = "landed"
    NOT_EXECUTED = "not_executed"
    POSTPONED = "postponed"  # grace had not passed, or nobody to ask; not counted as a try
    INCONCLUSIVE = "inconclusive"
    DEAD_LETTER = "dead_letter"
    OVERTAKEN = "overtaken"  # somebody else settled it meanwhile, or it is about a step that is not in doubt
    TOO_LATE = "too_late"  # it landed, and the record had ended as failed: a person has to look
    RUNNING = "running"  # an attempt is at it: deliver again later
    RESUMABLE = "resumable"  # an operation with no step in doubt any more: the resumer or a retry goes on with it
    SENT = "sent"  # deferred work: a worker was told once more
    ASKED = "asked"  # the reconciler will ask at once
    EXPIRED = "expired"  # the answer is given to nobody any more
    ABSENT = "absent"  # there is no such record


class Overtaken(Exception):
    """The record was settled while this verdict was on its way; its writes roll back."""


def settle_together(
    seen: Record, verdict: Landed, cite: str, using: str, store: Callable[[Reply], bool], actor: str, reason: str = ""
) -> None:
    """Domain writes and completion in one transaction, run again when the database asks for it.

    Inside a caller's transaction only the caller can run it again: a deadlock takes all of it back.
    """
    tries = 1 if limits.in_transaction(using) else limits.TRIES
    for remaining in reversed(range(tries)):
        try:
            with transaction.atomic(using=using):
                if not store(verdict.settle()):
                    raise Overtaken
                events.note(seen.id, "landed", cite, using, actor=actor, reason=reason)
            return
        except Error as error:
            if not (remaining and limits.may_repeat(error)):
                raise


def announce_committed(signal: Signal, using: str, **payload: Any) -> None:
    """Once it is committed, which the caller's own transaction may put off."""
    try:
        limits.inside_test_case(using)
    except InsideTransaction:
        with transaction.atomic(using=using, savepoint=False):  # without autocommit, hooks are taken only in a block
            transaction.on_commit(partial(announce, signal, using=using, **payload), using=using, robust=True)
    else:
        announce(signal, using=using, **payload)


@dataclass(frozen=True, slots=True)
class DoubtfulStep:
    """A foreign step that began, as it was read: `op.effect(…, in_doubt="reconcile")` was cut in its middle."""

    name: str
    key: str  # what the other side was sent
    progress: Progress
    steps_done: int

    def landed(self, result: Any) -> GoOn:
        """With the step's result, as the operation would have seen it. JSON, or it raises."""
        return self._from(self.progress.done(self.name, result))

    def not_executed(self) -> GoOn:
        """Without its mark, so that the call is made once more."""
        return self._from(self.progress.taken_back())

    def _from(self, progress: Progress) -> GoOn:
        return GoOn(self.name, uuid4(), progress.dump(), progress.recovery_point, self.steps_done)


def doubtful_step(row: IdempotencyKey) -> DoubtfulStep | None:
    """The step that a record waits for, if it is a step."""
    if not row.progress:
        return None
    progress = Progress.load(row.progress)
    name = progress.in_doubt
    return None if name is None else DoubtfulStep(name, derived_key(row.id, name), progress, row.steps_done)


def done_keys(row: IdempotencyKey) -> list[str]:
    """What the other sides were sent in the steps that are done."""
    return [row.derive(name) for name in Progress.load(row.progress).finished] if row.progress else []


def backoff(tries: int) -> float:
    """Full jitter, so that a thousand doubts of one outage do not ask in step."""
    longest = conf.RECONCILE_BACKOFF_MAX.total_seconds()
    ceiling = min(longest, conf.RECONCILE_BACKOFF.total_seconds() * 2 ** min(tries, 32))
    return max(1.0, random.uniform(0, ceiling))  # noqa: S311 - jitter, not a secret
