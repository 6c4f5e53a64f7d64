"""One record in every state under every combination of guards, and what a statement does to it."""

from collections.abc import Iterator
from itertools import chain, product
from uuid import UUID, uuid4

from django_idempotency import Status
from django_idempotency.core.calls import make_record_id
from django_idempotency.core.transitions import Guard
from django_idempotency.models import IdempotencyKey
from tests.kit.rows import SCOPE, Row, a_row, columns_for, put, snapshot
from tests.store.oracle import Facts, Verb, differences

# What makes a guard true or false, for the row or for the caller.
KNOBS = {
    Guard.LEASE_LIVE: "lease over",
    Guard.LEASE_OVER: "lease over",
    Guard.TOKEN_MINE: "token",
    Guard.TOKEN_AS_READ: "token",
    Guard.UNTAINTED: "tainted",
    Guard.SUCCESS_OR_UNTAINTED: "tainted",
    Guard.RESUMABLE: "resumable",
    Guard.NOT_RESUMABLE: "resumable",
    Guard.NO_STEP_MARKED: "stepped",
    Guard.PROGRESS_AS_READ: "progress",
    Guard.GRACE_OVER: "grace over",
    Guard.TRIES_LEFT: "used up",
    Guard.NO_TRIES_LEFT: "used up",
    Guard.DUE: "not due",
    Guard.UNATTENDED: "idle",
    Guard.ATTEMPTS_LEFT: "used up",
    Guard.NO_ATTEMPTS_LEFT: "used up",
    Guard.RETAINED: "retention over",
    Guard.RETENTION_OVER: "retention over",
    Guard.DEFERRED: "deferred",
    Guard.NOT_DEFERRED: "deferred",
    Guard.NOT_BEGUN: "begun",
    Guard.HAS_RUN: "never ran",
    Guard.NO_TRACE: "wrote",
    Guard.TRACE: "wrote",
    Guard.NOTHING_WRITTEN: "wrote",
    Guard.AUDITED: "audited",
    Guard.NOT_AUDITED: "audited",
}
TRACES = ("tainted", "derived", "stepped")
ALSO = {  # what else a statement looks at
    "complete": {"success", "derives"},
    "retry": {"stepped"},
    "release": {"success", "derives"},
    "give_back": {"derived"},
    **{name: {"derives"} for name in ("insert_finished", "doubt", "defer", "requeue")},
    **dict.fromkeys(("exhaust", "give_up_retrying", "abandon", "give_up_waiting"), frozenset(TRACES)),
}
EVERY = frozenset({*KNOBS.values(), *chain.from_iterable(ALSO.values())})


def a_world(status: Status | None, on: frozenset[str], key: str = "key") -> tuple[UUID, Facts]:
    """A record in this state with these knobs on, and a caller to match."""
    row, facts = imagined(status, on, key)
    IdempotencyKey.objects.filter(key=key).delete()
    if row is not None:
        put(Status(row.pop("status")), key=key, **row)
    return make_record_id(SCOPE, key), facts


def imagined(status: Status | None, on: frozenset[str], key: str = "key") -> tuple[Row | None, Facts]:
    """The same without a database."""
    steps = 0 if "progress" in on else 1
    facts = Facts(
        key=key,
        success="success" in on,
        derives="derives" in on,
        restart="resumable" in on,
        soft="audited" in on,
        cap=5,
        steps_done=steps,
    )
    token = None if "never ran" in on and status is Status.DEAD_LETTER else uuid4()
    token = facts.read_token if "token" in on else token
    row = None if status is None else {**a_row(status), "attempt_token": token, **columns_for(status, on)}
    return row, facts


def favourable(verb: Verb, status: Status | None) -> frozenset[str]:
    """Knobs with which the verb changes a record in this state."""
    for on in combinations(verb):
        if verb.predicted(*imagined(status, on))[0]:
            return on
    raise AssertionError(f"{verb.name} can do nothing to what is {status}")


def mattering(verb: Verb) -> frozenset[str]:
    """The knobs that the verb looks at."""
    guards = {KNOBS[guard] for transition in verb.transitions for guard in transition.guards}
    return frozenset(guards | ALSO.get(verb.name, set()))


def combinations(verb: Verb) -> Iterator[frozenset[str]]:
    """Every combination of what the verb's guards look at, once among friends and once among enemies."""
    names = sorted(mattering(verb))
    for truths in product((False, True), repeat=len(names)):
        chosen = frozenset(name for name, truth in zip(names, truths, strict=True) if truth)
        yield chosen
        yield chosen | (EVERY - mattering(verb))


def check(verb: Verb, record: UUID, facts: Facts) -> bool:
    """Run it, and compare the row with the prediction; answers whether it changed anything."""
    before = snapshot(record)
    changes, expected = verb.predicted(before, facts)
    assert verb.run(record, facts) is changes, f"{verb.name} should answer {changes} for {before}"
    after = snapshot(record)
    if changes:
        assert differences(after, expected) == {}, f"{verb.name} on {before}"
    else:
        assert after == before, f"{verb.name} is outside the table here and changed the row"
    return changes
