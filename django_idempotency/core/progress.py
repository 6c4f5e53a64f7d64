"""How far an operation has come: its steps in their order, and what each one gave."""

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from django_idempotency.exceptions import ChangedDefinition


class StepState(StrEnum):
    """A local step is done or not there; a foreign one is marked before it begins."""

    STARTED = "started"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Step:
    """One finished or begun step."""

    name: str
    state: StepState
    result: Any = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Immutable: each mark is a new progress, written by a guarded statement."""

    version: int = 1
    steps: tuple[Step, ...] = field(default=())
    extent: tuple[int, int] | None = None  # how much of the work is done, and of how much, as the operation says

    @classmethod
    def load(cls, text: str) -> "Progress":
        data = json.loads(text)
        steps = tuple(Step(name, StepState(state), result) for name, state, result in data["steps"])
        done, total = data.get("extent", (0, 0))
        return cls(data["version"], steps, (done, total) if "extent" in data else None)

    def dump(self) -> str:
        steps = [[step.name, step.state.value, step.result] for step in self.steps]
        extent = {} if self.extent is None else {"extent": self.extent}
        data = {"version": self.version, "steps": steps, **extent}
        return json.dumps(data, separators=(",", ":"), allow_nan=False)

    def at(self, position: int, name: str) -> Step | None:
        """The step recorded at this position; ChangedDefinition when another one was there when the work began."""
        if position >= len(self.steps):
            if any(step.name == name for step in self.steps):
                raise ChangedDefinition(f"The step {name!r} comes twice: give each turn of a loop a name of its own.")
            return None
        recorded = self.steps[position]
        if recorded.name != name:
            raise ChangedDefinition(
                f"Step {position + 1} of this record was {recorded.name!r} and is {name!r} now: the operation was "
                "changed under work in flight. Let the code that did that step finish it, or settle the record by hand."
            )
        return recorded

    @property
    def finished(self) -> list[str]:
        """The names of the steps that are done, in their order."""
        return [step.name for step in self.steps if step.state is StepState.DONE]

    @property
    def recovery_point(self) -> str:
        """The last step that is done."""
        return self.finished[-1] if self.finished else ""

    @property
    def in_doubt(self) -> str | None:
        """The foreign step that began and that nobody saw the end of."""
        last = self.steps[-1] if self.steps else None
        return last.name if last is not None and last.state is StepState.STARTED else None

    def without_last(self) -> "Progress":
        """Take the last mark back: its step did not happen."""
        return replace(self, steps=self.steps[:-1])

    def so_far(self, done: int, total: int) -> "Progress":
        return replace(self, extent=(done, total))

    def started(self, name: str) -> "Progress":
        return self._with(Step(name, StepState.STARTED))

    def done(self, name: str, result: Any) -> "Progress":
        return self._with(Step(name, StepState.DONE, result))

    def _with(self, step: Step) -> "Progress":
        kept = self.steps[:-1] if self.steps and self.steps[-1].name == step.name else self.steps
        return replace(self, steps=(*kept, step))
