"""Holes that the package once had, or would have without one of its guards: the walk has to find each one again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

from django_idempotency.core.decisions import Record
from django_idempotency.core.effects import Effect, effect_of
from django_idempotency.core.states import Status
from django_idempotency.exceptions import NotExecuted
from django_idempotency.flow.finish import proves_nothing_happened
from django_idempotency.http import requests, responses
from django_idempotency.http.exchange import Exchange
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import attempts, jobs, verdicts
from django_idempotency.store.dialects import Statement

Patch = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Hole:
    """How to make it, where the walk goes, and what it finds there."""

    make: Patch
    endpoints: tuple[str, ...]
    violations: tuple[str, ...]

    @contextmanager
    def made(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.make(stack)
            yield


def everywhere(stack: ExitStack, original: Any, instead: Any) -> None:
    """Replace a function in every module that imported it."""
    name: str = original.__name__
    for path, module in list(sys.modules.items()):
        if path.startswith("django_idempotency") and vars(module).get(name) is original:
            stack.enter_context(mock.patch.object(module, name, instead))


def statement(stack: ExitStack, changed: Statement, old: str, new: str) -> None:
    """Change the text of a statement, for every database."""
    texts = {vendor: text.replace(old, new) for vendor, text in changed._texts.items()}
    assert texts != changed._texts, old
    stack.enter_context(mock.patch.dict(changed._texts, texts))


def forget(stack: ExitStack, fact: str, column: str) -> None:
    """Leave one fact out of what is known about the effect."""
    facts = {"tainted", "derived", "wrote", "steps_done"} - {fact}

    def traced(self: Any) -> bool:
        return any(getattr(self, each) for each in facts)

    for kind in (Record, IdempotencyKey):
        stack.enter_context(mock.patch.object(kind, "traced", property(traced)))
    for each in (jobs.EXHAUST, jobs.GIVE_UP_RETRYING, jobs.ABANDON, jobs.GIVE_UP_WAITING):
        statement(stack, each, column, "1 = 0")


def ended_is_safe(stack: ExitStack) -> None:
    """Take "it has ended" for "nothing happened"."""

    def settled(status: Status, reply: object, grace_left: float | None = None, *, traced: bool = False) -> Effect:
        freed = status is Status.FAILED_RETRYABLE and (grace_left is None or grace_left <= 0)
        return Effect.NONE if status in Status.ENDED or freed else Effect.POSSIBLE

    everywhere(stack, effect_of, settled)


def any_proof_counts(stack: ExitStack) -> None:
    """Believe a NotExecuted about another key, and one after derive()."""
    everywhere(stack, proves_nothing_happened, lambda error, attempt: isinstance(error, NotExecuted))


def timeouts_are_final(stack: ExitStack) -> None:
    """Store a 5xx that the view returned after derive()."""
    keep = Exchange.keep

    def kept(self: Exchange, response: Any, **_: Any) -> Any:
        return keep(self, response)

    stack.enter_context(mock.patch.object(Exchange, "keep", kept))


def verdicts_keep_the_token(stack: ExitStack) -> None:
    for each in (verdicts.LANDED, verdicts.EVIDENCE):
        statement(stack, each, "attempt_token = NULL", "attempt_token = attempt_token")


def atomic_references(stack: ExitStack) -> None:
    """Name a reference to a request that may leave no record."""
    members = responses.effect_members

    def named(call: Any, record: Any) -> dict[str, Any]:
        return {**members(call, record), "operation_ref": str(call.id)}

    stack.enter_context(mock.patch.object(responses, "effect_members", named))


def one_tenant(stack: ExitStack) -> None:
    everywhere(stack, requests.tenant_of, lambda request, policy: "")


def no_fence(stack: ExitStack) -> None:
    """Let an attempt end a record that another one has ended."""
    mine = "attempt_token = %(token)s AND status IN ('in_progress', 'unknown')"
    statement(stack, attempts.COMPLETE, mine, "%(token)s IS NOT NULL")


LATE: Final = ("late", "whole", "restart")
PROOF: Final = ("false proof",)
HOLES: Final = {
    "a stored success is safe": Hole(ended_is_safe, LATE, PROOF),
    "derived is forgotten": Hole(partial(forget, fact="derived", column="derived"), ("release",), PROOF),
    "wrote is forgotten": Hole(partial(forget, fact="wrote", column="wrote"), ("deferred",), PROOF),
    "steps are forgotten": Hole(partial(forget, fact="steps_done", column="steps_done > 0"), ("operation",), PROOF),
    "any proof counts": Hole(any_proof_counts, ("late", "filter"), ("false proof", "second charge")),
    "timeouts are final": Hole(timeouts_are_final, ("late", "whole"), ("false end",)),
    "verdicts keep the token": Hole(verdicts_keep_the_token, ("late",), ("two responses", "no such row")),
    "atomic references": Hole(atomic_references, ("atomic",), ("false address",)),
    "one tenant": Hole(one_tenant, LATE, ("another's response", "two responses")),
    "no fence": Hole(no_fence, ("restart",), ("second booked", "two responses", "no such row")),
}
