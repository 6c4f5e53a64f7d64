"""The progress of an operation: its steps in their order, and their results."""

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from django_idempotency.core.validation import dump_json
from django_idempotency.exceptions import ChangedDefinition, DuplicateStep


class StepState(StrEnum):
    """The state of a recorded step: a phase is recorded when it is done, an effect before it starts too."""

    STARTED = "started"
    DONE = "done"


class Moment(NamedTuple):
    """When a step began or ended, and in which attempt. For people: nothing is decided by it."""

    after: int  # milliseconds since the record was created, by the database's clock
    attempt: int  # 0: a verdict, and no attempt


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded step. The moments are missing where an older version recorded it."""

    name: str
    state: StepState
    result: Any = None
    begun: Moment | None = None  # of an effect alone: a phase is recorded when it is done
    ended: Moment | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The recorded steps of an operation. Immutable: each change is a new value, written by a guarded statement."""

    version: int = 1
    steps: tuple[Step, ...] = field(default=())
    extent: tuple[int, int] | None = None  # how much is done, and of how much, as the operation reports it

    @classmethod
    def load(cls, text: str) -> "Progress":
        data = json.loads(text)
        stored, moments = data["steps"], data.get("moments", ())
        missing = [(None, None)] * (len(stored) - len(moments))
        steps = tuple(
            Step(name, StepState(state), result, _load_moment(begun), _load_moment(ended))
            for (name, state, result), (begun, ended) in zip(stored, [*moments, *missing], strict=False)
        )
        done, total = data.get("extent", (0, 0))
        return cls(data["version"], steps, (done, total) if "extent" in data else None)

    def dump(self) -> str:
        steps = [[step.name, step.state.value, step.result] for step in self.steps]
        extent = {} if self.extent is None else {"extent": self.extent}
        # Beside the steps, so that an older version can still read them during a deployment.
        moments = [[step.begun, step.ended] for step in self.steps]
        known = {"moments": moments} if any(step.begun or step.ended for step in self.steps) else {}
        data = {"version": self.version, "steps": steps, **extent, **known}
        try:
            return json.dumps(data, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError):
            for step in self.steps:
                dump_json(f"The result of the step {step.name!r}", step.result)
            raise

    def find(self, position: int, name: str) -> Step | None:
        """Return the step at this position, None if it is not reached. Raise an error if another step is there."""
        if position >= len(self.steps):
            if any(step.name == name for step in self.steps):
                raise DuplicateStep(f"The step {name!r} occurs twice. Give each turn of a loop its own step name.")
            return None
        recorded = self.steps[position]
        if recorded.name != name:
            raise ChangedDefinition(
                f"Step {position + 1} of this record was {recorded.name!r} and is {name!r} now: the operation was "
                "changed while work was in flight. Let code with the recorded steps finish it, or settle it by hand."
            )
        return recorded

    @property
    def finished(self) -> list[str]:
        """Return the names of the steps that are done, in their order."""
        return [step.name for step in self.steps if step.state is StepState.DONE]

    @property
    def recovery_point(self) -> str:
        """Return the name of the last step that is done; empty if there is none."""
        return self.finished[-1] if self.finished else ""

    @property
    def step_in_doubt(self) -> str | None:
        """Return the name of the effect that was started and whose end was not recorded."""
        last = self.steps[-1] if self.steps else None
        return last.name if last is not None and last.state is StepState.STARTED else None

    def drop_last(self) -> "Progress":
        """Remove the last step, because it did not happen."""
        return replace(self, steps=self.steps[:-1])

    def report(self, done: int, total: int) -> "Progress":
        return replace(self, extent=(done, total))

    def mark_started(self, name: str, begun: Moment | None) -> "Progress":
        return self._with(Step(name, StepState.STARTED, begun=begun))

    def mark_done(self, name: str, result: Any, ended: Moment | None = None) -> "Progress":
        last = self.steps[-1] if self.steps else None
        begun = last.begun if last is not None and last.name == name else None
        return self._with(Step(name, StepState.DONE, result, begun, ended))

    def _with(self, step: Step) -> "Progress":
        kept = self.steps[:-1] if self.steps and self.steps[-1].name == step.name else self.steps
        return replace(self, steps=(*kept, step))


def _load_moment(stored: Any) -> Moment | None:
    return None if stored is None else Moment(*stored)
