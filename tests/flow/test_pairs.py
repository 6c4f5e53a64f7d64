"""Two do something to one record at once: the end is one that the table allows for one of the two orders.

The first holds its transaction open until the second has ended or waits for it. SQLite has one writer at a time, so
there the second begins when the first has ended.
"""

from collections.abc import Callable
from threading import Event
from uuid import UUID

import pytest
from django.db import connection, transaction

from django_idempotency import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from tests.kit.databases import backend, is_waiting
from tests.kit.rows import Row, columns_for, put, snapshot
from tests.kit.threads import Actor, actors, again_on_deadlock, wait_until
from tests.store.oracle import Facts, Verb, differences
from tests.store.verbs import BY_NAME

pytestmark = pytest.mark.vendor

NAMES = [
    "claim",
    "complete",
    "release",
    "doubt",
    "lapse",
    "landed",
    "not_executed",
    "evidence",
    "dismiss",
    "take_over",
    "renew",
    "expire",
    "expire_now",
    "delete",
]
WRITERS = {"complete", "landed", "evidence"}  # their transactions carry the domain's own write
FAVOURABLE = frozenset({"lease over", "grace over", "retention over", "resumable"})


class Refused(Exception):
    """The store said no, so the domain write has to go as well."""


def act(verb: Verb, record: UUID, facts: Facts) -> None:
    if verb.name in WRITERS:
        IdempotencyEvent.objects.create(record_id=record, kind="domain write")
    if not verb.run(record, facts):
        raise Refused


def at_once(verb: Verb, record: UUID, facts: Facts) -> bool:
    try:
        with transaction.atomic():
            act(verb, record, facts)
    except Refused:
        return False
    return True


def held_open(verb: Verb, record: UUID, facts: Facts, commit: bool, acted: Event, go: Event) -> None:
    with transaction.atomic():
        act(verb, record, facts)
        acted.set()
        assert go.wait(60)
        transaction.set_rollback(not commit)


def run_pair(
    crowd: list[Actor], number: int, first: Callable[[Event, Event], None], second: Callable[[], bool]
) -> bool:
    """Both, the second while the first is still open where the database can; answers what the second was told."""
    acted, go = Event(), Event()
    if connection.vendor == "sqlite":
        go.set()
        crowd[0].do(first, acted, go)
        return crowd[1].do(second)
    opened = crowd[0].start(first, acted, go)
    try:
        assert acted.wait(60), opened.exception(timeout=0)
        other = crowd[1].start(lambda: again_on_deadlock(second))
        wait_until(lambda: other.done() or is_waiting(number))
    finally:
        go.set()
    opened.result(60)
    return other.result(60)


def set_up(status: Status | None, facts: Facts, audited: bool) -> Row | None:
    IdempotencyEvent.objects.all().delete()
    IdempotencyKey.objects.all().delete()
    if status is not None:
        on = FAVOURABLE | ({"audited"} if audited else set())
        put(status, attempt_token=facts.read_token, **columns_for(status, on))
    return snapshot(facts.call.id)


@pytest.mark.direct
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", NAMES)
def test_the_end_is_one_that_the_table_allows(name: str) -> None:
    first = BY_NAME[name]
    sources = {status for each in first.transitions for status in each.sources or {None}}
    with actors(2) as crowd:
        number = 0 if connection.vendor == "sqlite" else crowd[1].do(backend)
        for status in sorted(sources, key=str):
            for second in map(BY_NAME.__getitem__, NAMES):
                for commit in (True, False):
                    check(crowd, number, first, second, status, commit)


def check(crowd: list[Actor], number: int, first: Verb, second: Verb, status: Status | None, commit: bool) -> None:
    one = Facts(restart=True)
    other = Facts(restart=True, read_token=one.read_token)
    before = set_up(status, one, audited="expire" in (first.name, second.name) and first.name != "delete")
    record = one.call.id
    assert first.predicted(before, one)[0], f"{first.name} should change {before}"

    told = run_pair(
        crowd,
        number,
        lambda acted, go: held_open(first, record, one, commit, acted, go),
        lambda: at_once(second, record, other),
    )

    after = snapshot(record)
    story = f"{first.name} ({'committed' if commit else 'rolled back'}) and {second.name} from {status}"
    allowed = allowed_ends(first, one, second, other, before) if commit else [second.predicted(before, other)]
    assert any(told is changed and not differences(after, row) for changed, row in allowed), story
    written = (first.name in WRITERS and commit) + (second.name in WRITERS and told)
    assert IdempotencyEvent.objects.count() == written <= 1, story


def allowed_ends(
    first: Verb, one: Facts, second: Verb, other: Facts, before: Row | None
) -> list[tuple[bool, Row | None]]:
    """What the second is told and what stands in the end, whichever of the two the database lets be the earlier."""
    _, between = first.predicted(before, one)
    ends = [second.predicted(between, other)]
    told, between = second.predicted(before, other)
    changed, last = first.predicted(between, one)
    return [*ends, (told, last)] if changed else ends
