"""The one step of an operation that nobody knows the outcome of, and how the operation goes on when it is known.

What is settled about a step does not end the record: the resumer or a retry goes on from there.
"""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django_idempotency.core.decisions import derived_key
from django_idempotency.core.progress import Progress
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.steps import GoOn


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
