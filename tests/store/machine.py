"""Actors with connections of their own, who do to two keys whatever they like, in any order."""

from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from django_idempotency import Status
from django_idempotency.core.calls import make_record_id
from django_idempotency.models import IdempotencyKey
from tests.kit.rows import SCOPE, columns_for, snapshot
from tests.kit.threads import Actor, actors
from tests.store.oracle import Facts, Verb, differences
from tests.store.verbs import ALL
from tests.store.worlds import EVERY, a_world, favourable, mattering

SOURCES = {verb.name: [source for each in verb.transitions for source in each.sources or [None]] for verb in ALL}
FITTING = {status: [verb for verb in ALL if status in SOURCES[verb.name]] for status in (None, *Status)}
WORLDS = [(verb, [(status, favourable(verb, status)) for status in SOURCES[verb.name]]) for verb in ALL]
KEYS = st.sampled_from(["one", "two"])
# Hypothesis likes to draw again what it drew before, too much to come everywhere in so few steps. So it draws numbers,
# and what they stand for depends on the example and on the step as well.
NUMBERS = st.integers(0, 2**24 - 1)


def some(chance: Random) -> frozenset[str]:
    """Any knobs, but for a dead letter that never ran: nothing leads there."""
    return frozenset(knob for knob in sorted(EVERY - {"never ran"}) if chance.random() < 0.5)


class StoreMachine(RuleBasedStateMachine):
    """Each step is compared with the table."""

    crowd: list[Actor] = []

    @initialize(number=NUMBERS)
    def nothing(self, number: int) -> None:
        IdempotencyKey.objects.all().delete()
        self.tokens: list[UUID] = [uuid4()]
        self.number = number

    def chance(self, number: int) -> Random:
        return Random(f"{self.number} {len(self.tokens)} {number}")

    @rule(key=KEYS, number=NUMBERS)
    def a_record_is_met(self, key: str, number: int) -> None:
        """All that a verb asks for is so, but for one thing at most; the rest of the record is anything."""
        chance = self.chance(number)
        verb, worlds = chance.choice(WORLDS)
        status, on = chance.choice(worlds)
        if chance.random() < 0.2:
            status = chance.choice([None, *Status])
        elif chance.random() < 0.8:
            on ^= {chance.choice(sorted(mattering(verb) | {"token"}))}
        record, facts = a_world(status, on | (some(chance) - mattering(verb)), key)
        self.tokens.append(facts.read_token)
        self.act(verb, record, facts, chance)

    @rule(key=KEYS, number=NUMBERS)
    def somebody_goes_on(self, key: str, number: int) -> None:
        """From where the last one left the record, at once or when some of its times have passed."""
        chance, row = self.chance(number), snapshot(make_record_id(SCOPE, key))
        if row and chance.random() < 0.5:
            times = columns_for(Status(row["status"]), some(chance))
            moved = {name: times[name] for name in ("locked_until", "grace_until", "expires_at") if row[name]}
            IdempotencyKey.objects.filter(key=key).update(**moved)
        facts = Facts(
            key=key,
            read_token=chance.choice(self.tokens[-20:]),
            success=chance.random() < 0.5,
            cap=chance.choice([1, 4, 5, 10]),
            restart=chance.random() < 0.5,
            keep=chance.random() < 0.5,
            soft=chance.random() < 0.5,
        )
        facts = facts.having_read(row, token=chance.random() < 0.75, progress=chance.random() < 0.75)
        status = Status(row["status"]) if row else None
        self.act(
            chance.choice(FITTING[status] if chance.random() < 0.75 else ALL),
            make_record_id(SCOPE, key),
            facts,
            chance,
        )

    def act(self, verb: Verb, record: UUID, facts: Facts, chance: Random) -> None:
        brings, commits = replace(facts, new_token=uuid4()), chance.random() < 0.75
        self.tokens.append(brings.new_token)
        before = snapshot(record)
        changes, expected = verb.predicted(before, brings)

        told = chance.choice(self.crowd).do(in_a_transaction, verb, record, brings, commits)

        after = snapshot(record)
        assert told is changes, f"{verb.name} should answer {changes} for {before}"
        if changes and commits:
            assert differences(after, expected) == {}, f"{verb.name} on {before}"
        else:
            assert after == before, f"{verb.name} is outside the table here and changed the row"


def in_a_transaction(verb: Verb, record: UUID, facts: Facts, committed: bool) -> bool:
    with transaction.atomic():
        changed = verb.run(record, facts)
        transaction.set_rollback(not committed)
    return changed


def run_machine(**more: Any) -> None:
    """The same examples each time, so that a failure is there again when it is looked for."""
    bounded = settings(
        stateful_step_count=30,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with actors(3) as StoreMachine.crowd:
        run_state_machine_as_test(StoreMachine, settings=settings(bounded, **more))


def first_failure() -> None:
    """Without looking for the shortest way to it, and with patience: another verb changes which examples come first."""
    run_machine(max_examples=600, phases=[Phase.generate], report_multiple_bugs=False)
