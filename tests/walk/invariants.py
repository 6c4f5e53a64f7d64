"""What has to be true of every history, whatever happens in it.

- One effect: a key has at most one row of each kind and one call of the provider in each generation.
- No false proof: nobody is told that nothing happened, or that a new key is safe, beside an effect or before one.
- One response: all stored responses of a key are equal, and a success names a row that is there.
- One owner: nobody gets the response of another user or tenant.
- No false end: no error is stored as the final response of a request that had its effect.
- No bare error: a page for errors is the project's own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from django_idempotency import Status
from django_idempotency.models import IdempotencyKey
from testproject.payments.models import LedgerEntry
from tests.walk.endpoints import MAY_REPEAT
from tests.walk.steps import Told
from tests.walk.world import Effect, Subject, World

NOTHING: Final = {"idempotency_not_executed", "idempotency_attempts_exhausted", "idempotency_work_abandoned"}
NOT_RUN: Final = "idempotency_store_unavailable"
FINAL_ERRORS: Final = {403, 404}  # and every 5xx


class Violation(AssertionError):
    """An invariant is broken. `name` stays the same while the history is made shorter."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


@dataclass
class Ledger:
    """What clients were told so far, compared with what really happened."""

    world: World
    proofs: list[Told] = field(default_factory=list)
    stored: dict[tuple[Subject, int], Told] = field(default_factory=dict)

    def tell(self, told: Told) -> None:
        """Somebody gets a response."""
        self.world.look()
        self.require_owner(told)
        self.require_one_response(told)
        if says_nothing_happened(told):
            self.proofs.append(told)
        if told.code == NOT_RUN and any(effect.sent == told.sent for effect in self.world.effects):
            raise Violation("false proof", f"{told.subject} was not executed, it is said, and it was")
        own = told.subject.endpoint in ("stripe", "release")  # whose policy says what an error means
        bare = told.run is not None and told.status == 500 and not told.json and not told.run.excused and not own
        if bare and any(effect.sent == told.sent for effect in self.world.effects):
            raise Violation("bare error", f"{told.subject} got an error page after its view had done its work")
        if told.leads_nowhere:
            raise Violation("false address", f"{told.subject} was told a reference that leads nowhere ({told.code})")
        self.require_true_proofs()

    def check(self) -> None:
        """What is true after every step."""
        self.world.look()
        self.require_one_effect()
        self.require_true_proofs()
        self.require_true_ends()

    def require_owner(self, told: Told) -> None:
        body = told.json
        if "tenant" in body and (body["tenant"], body["user"]) != told.asked_by:
            raise Violation("another's response", f"{told.asked_by} got {told.body}")

    def require_one_response(self, told: Told) -> None:
        final = told.replayed or (200 <= told.status < 300 and told.status != 202)
        if not final:
            return
        row = told.json.get("row")
        if row is not None and not LedgerEntry.objects.filter(pk=row).exists():
            raise Violation("no such row", f"{told.subject} got {told.body}, and that row was rolled back")
        first = self.stored.setdefault((told.subject, told.generation), told)
        if (first.status, first.body) != (told.status, told.body):
            text = f"{told.subject} got {first.status} {first.body} and {told.status} {told.body}"
            raise Violation("two responses", text)
        error = told.status >= 500 or told.status in FINAL_ERRORS
        if error and told.code not in NOTHING and told.subject.endpoint != "stripe" and self.effects_of(told):
            raise Violation("false end", f"{told.subject} is given {told.status} for ever, beside an effect")

    def require_one_effect(self) -> None:
        kinds = Counter((effect.subject, effect.generation, effect.what) for effect in self.world.effects)
        for (subject, generation, what), number in kinds.items():
            sent = self.world.arrived[subject, generation, what]
            allowed = (subject.endpoint, what) in MAY_REPEAT and sent == number
            if number > 1 and not allowed:
                raise Violation(f"second {what}", f"{subject} had {number} in its generation {generation}")

    def require_true_proofs(self) -> None:
        for told in self.proofs:
            for effect in self.effects_of(told):
                before = effect.at <= told.at
                if told.subject.endpoint == "atomic" and told.code in NOTHING and "safe_new_key" not in told.json:
                    if effect.sent != told.sent:  # of two at once the other one may have run
                        continue
                elif not before and effect.sent > told.at:  # of a request that was sent after it
                    continue
                when = "beside" if before else "before"
                said = "a new key is safe" if told.json.get("safe_new_key") else "nothing happened"
                text = f"{told.subject} was told {said} ({told.status} {told.code}) {when} the effect {effect.what!r}"
                raise Violation("false proof", text)

    def require_true_ends(self) -> None:
        """A success that is stored has its effect."""
        for record in IdempotencyKey.objects.filter(status=Status.COMPLETED, response_status__lt=300):
            found = [effect for effect in self.world.effects if effect.subject.key == record.key]
            if not found and record.operation != "walk.mail":
                raise Violation("no effect", f"{record.operation} is completed, and nothing happened")

    def effects_of(self, told: Told) -> list[Effect]:
        return [
            effect
            for effect in self.world.effects
            if (effect.subject, effect.generation) == (told.subject, told.generation)
        ]


def says_nothing_happened(told: Told) -> bool:
    body = told.json
    return body.get("safe_new_key") is True or "none" in (body.get("effect"), told.effect) or told.code in NOTHING
