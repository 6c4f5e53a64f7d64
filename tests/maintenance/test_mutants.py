"""Three rules that must not bend. Each scenario holds with its rule, and its assertion fails without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F

from django_idempotency import Reply, json_reply, maintenance
from django_idempotency.core.calls import Call
from django_idempotency.flow import claim
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import doubt
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, NotLanded, Verdict, reconciler
from django_idempotency.store import verdicts
from django_idempotency.store.dialects import Statement
from testproject.payments.models import LedgerEntry
from tests.kit.calls import a_call, claimed
from tests.kit.records import row_of

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

OPERATION = "tests.mutants"
Ask = Callable[[IdempotencyKey], Verdict]
Answering = Callable[[Ask], None]
Scenario = Callable[[Answering], None]


@pytest.fixture
def answering(registrations: None) -> Answering:
    """Say what the reconciler of these scenarios does."""
    asks: list[Ask] = []
    reconciler(OPERATION)(lambda record: asks[0](record))
    return asks.append


def doubtful(**policy: Any) -> Call:
    call = a_call(operation=OPERATION, **policy)
    lose(call)
    return call


def lose(call: Call) -> None:
    assert doubt(claimed(call), "test")


def let_grace_pass(call: Call) -> None:
    IdempotencyKey.objects.filter(id=call.id).update(grace_until=F("created_at"))


def effect(record: UUID) -> Reply:
    LedgerEntry.objects.create(reference=str(record), account="gateway", amount=1)
    return json_reply(201, {})


def effects(call: Call) -> int:
    return LedgerEntry.objects.filter(reference=str(call.id)).count()


def a_message_that_is_still_on_its_way_has_one_effect(answering: Answering) -> None:
    call = doubtful()
    answering(lambda record: NotLanded())
    maintenance.reconcile()
    effect(call.id)  # the lost attempt's message arrives now
    if isinstance(claim.begin(call), Attempt):
        effect(call.id)
    assert effects(call) == 1


def a_verdict_says_nothing_about_a_later_attempt(answering: Answering) -> None:
    call = doubtful(on_lost_lease="restart")
    let_grace_pass(call)

    def ask(record: IdempotencyKey) -> Verdict:
        lose(call)  # while the answer is on its way, a retry takes the record over, has its effect and is lost too
        effect(call.id)
        let_grace_pass(call)
        return NotLanded()

    answering(ask)
    maintenance.reconcile()
    assert (row_of(call).status, effects(call)) == ("unknown", 1)


def two_reconcilers_that_both_found_it_write_once(answering: Answering) -> None:
    call = doubtful()

    def ask(record: IdempotencyKey) -> Verdict:
        asked.append(record)
        if len(asked) == 1:
            reconcile_one(call.id, "default", at_once=True)  # the other one is quicker
        return Landed(write=partial(effect, record.id))

    asked: list[IdempotencyKey] = []
    answering(ask)
    maintenance.reconcile()
    assert (row_of(call).status, effects(call)) == ("completed", 1)


def without_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdempotencyKey, "grace_left", 0.0)
    cut(monkeypatch, verdicts.NOT_EXECUTED, r" AND grace_until <= .+")


def without_token_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, verdicts.NOT_EXECUTED, r" AND attempt_token = %\(read_token\)s")


def without_compare_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, verdicts.LANDED, r" AND status = 'unknown' AND attempt_token = %\(read_token\)s")


def cut(monkeypatch: pytest.MonkeyPatch, statement: Statement, condition: str) -> None:
    """Take a condition out of a statement, for every database."""
    texts = {vendor: re.subn(condition, "", text) for vendor, text in statement._texts.items()}
    assert [count for _, count in texts.values()] == [1] * len(texts), "the rule no longer stands where it stood"
    monkeypatch.setattr(statement, "_texts", {vendor: text for vendor, (text, _) in texts.items()})


RULES = [
    (a_message_that_is_still_on_its_way_has_one_effect, without_grace, r"assert 2 == 1"),
    (a_verdict_says_nothing_about_a_later_attempt, without_token_binding, r"assert \('failed_retryable', 1\) =="),
    (two_reconcilers_that_both_found_it_write_once, without_compare_and_set, r"assert \('completed', 2\) =="),
]


@pytest.mark.parametrize("scenario", [scenario for scenario, *_ in RULES])
def test_the_rule_holds(scenario: Scenario, answering: Answering) -> None:
    scenario(answering)


@pytest.mark.parametrize(("scenario", "mutate", "seen"), RULES)
def test_without_its_rule_the_scenario_fails(
    scenario: Scenario,
    mutate: Callable[[pytest.MonkeyPatch], None],
    seen: str,
    answering: Answering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=seen):
        scenario(answering)
