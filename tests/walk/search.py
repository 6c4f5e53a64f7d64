"""One history from a seed, the shortest part of it that still breaks an invariant, and how a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random

from django.contrib.auth.models import User
from django.db import connection, connections

from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from testproject.payments.models import LedgerEntry
from tests.walk.endpoints import POLICIES
from tests.walk.invariants import Ledger, Violation
from tests.walk.steps import Actor, Step, draw_steps, draw_subjects
from tests.walk.world import USERS, WORLD, Subject, World, record_of

LENGTH = 30


@dataclass
class History:
    """What happened, line by line."""

    subjects: list[Subject]
    steps: list[Step]
    lines: list[str] = field(default_factory=list)
    violation: Violation | None = None

    def __str__(self) -> str:
        keys = [f"  {number}: {subject}" for number, subject in enumerate(self.subjects)]
        return "\n".join([f"{self.violation}", "keys:", *keys, "history:", *self.lines])


class Player:
    """Plays one history on an empty database."""

    def __init__(self, subjects: list[Subject], steps: list[Step]) -> None:
        WORLD[0] = World()
        self.history = History(subjects, steps)
        self.ledger = Ledger(WORLD[0])
        self.actor = Actor(subjects, self.ledger.tell)
        self.elsewhere: list[Violation] = []  # in steps that others took while a view stood still

    def play(self) -> History:
        empty()
        try:
            for step in self.history.steps:
                self.take(step, "")
        except Violation as violation:
            self.history.violation = violation
        return self.history

    def take(self, step: Step, indent: str) -> None:
        number = len(self.history.lines)
        self.history.lines.append(f"{indent}{describe(step)}")
        try:
            outcome = self.actor.act(step, lambda other: self.take_elsewhere(other, indent + "    "))
            self.history.lines[number] += f" -> {outcome}" if outcome else ""
            if self.elsewhere:
                raise self.elsewhere[0]
            self.ledger.check()
            for subject in self.touched(step):
                self.ledger.tell(self.actor.receipt(subject))
        finally:
            self.history.lines[number] += self.state(self.actor.subjects[step.subject])

    def touched(self, step: Step) -> list[Subject]:
        """The subjects whose owners may be told something else after this step."""
        subjects = self.actor.subjects
        known = subjects if step.kind in ("job", "message") or step.during else [subjects[step.subject]]
        return [subject for subject in dict.fromkeys(known) if subject in WORLD[0].keys]

    def take_elsewhere(self, step: Step, indent: str) -> None:
        """Another process does it, to its end, while the first one stands still."""

        def there() -> None:
            try:
                self.take(step, indent)
            except Violation as violation:  # not through the view, which would take it for its own error
                self.elsewhere.append(violation)
            finally:
                connections.close_all()

        if self.elsewhere:
            return
        with ThreadPoolExecutor(1) as pool:
            pool.submit(there).result()

    def state(self, subject: Subject) -> str:
        if connection.needs_rollback:
            return ""
        record = record_of(subject)
        effects = [effect.what for effect in WORLD[0].effects if effect.subject == subject]
        status = (
            "no record"
            if record is None
            else " ".join(filter(None, [record.status, str(record.response_status or "")]))
        )
        return f"  [{status}; {', '.join(effects) or 'no effect'}]"


def describe(step: Step) -> str:
    script = [f"{name} {value}".removesuffix(" yes") for name, value in step.script.items()]
    crash = [f"killed at {step.crash}"] if step.crash else []
    points = [f"meanwhile at {point}" for point in step.during]
    details = ", ".join([*script, *crash, *points])
    return f"{step.subject}: {step}" + (f" ({details})" if details else "")


def empty() -> None:
    connections["default"].close_if_unusable_or_obsolete()
    for model in (IdempotencyKey, IdempotencyEvent, LedgerEntry):
        model._default_manager.all()._raw_delete(connection.alias)
    for name in ("ann", "bob"):
        if name not in USERS:
            USERS[name] = User.objects.get_or_create(username=name)[0]


def history_of(seed: int, endpoints: Sequence[str] = tuple(POLICIES), length: int = LENGTH) -> History:
    chance = Random(seed)
    return Player(draw_subjects(chance, endpoints), draw_steps(chance, length)).play()


def shortest(found: History) -> History:
    """Leave out steps, and then what goes wrong in them, for as long as the same invariant is broken."""
    assert found.violation is not None
    name, best = found.violation.name, found

    def still(steps: list[Step]) -> bool:
        nonlocal best
        again = Player(found.subjects, steps).play()
        if again.violation is None or again.violation.name != name:
            return False
        best = again
        return True

    def shorten() -> None:
        size = max(1, len(best.steps) // 2)
        while size:
            at = 0
            while at < len(best.steps):
                if not still(best.steps[:at] + best.steps[at + size :]):
                    at += size
            size //= 2

    shorten()
    at = 0
    while at < len(best.steps):
        before, step, after = best.steps[:at], best.steps[at], best.steps[at + 1 :]
        if not any(still([*before, *instead, *after]) for instead in simpler(step)):
            at += 1
    shorten()
    return best


def simpler(step: Step) -> Iterator[list[Step]]:
    """The same step with one thing less, or what others did in it alone."""
    for steps in step.during.values():
        yield list(steps)
    if step.crash:
        yield [replace(step, crash="")]
    for name in step.script:
        yield [replace(step, script={other: value for other, value in step.script.items() if other != name})]
    for point, steps in step.during.items():
        for at, inner in enumerate(steps):
            for instead in ([], *simpler(inner)):
                fewer = (*steps[:at], *instead, *steps[at + 1 :])
                yield [replace(step, during={point: fewer} if fewer else {})]
