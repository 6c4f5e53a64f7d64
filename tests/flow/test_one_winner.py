"""Many want the same at the same moment, each over a connection of its own: one gets it."""

from random import Random
from uuid import UUID, uuid4

import pytest
from django.db.models import Count

from django_idempotency import Status
from django_idempotency.core.decisions import Record
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import claims, limits
from tests.kit.rows import NAMESPACE, a_call, columns_for, put, snapshot
from tests.kit.threads import actors, again_on_deadlock, together
from tests.store.oracle import Facts
from tests.store.verbs import BY_NAME

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]
CONNECTIONS = 50
SECONDS = 20.0


def claim(key: str, token: UUID) -> Record | None:
    """As the flow claims: within a limit, again after a deadlock."""
    call = a_call(key)
    return limits.repeated(
        lambda left: claims.insert_claim(call, token, "default", left, namespace=NAMESPACE), "default", SECONDS
    )


@pytest.mark.parametrize("rounds", [1, 4], ids=["50 claims", "200 claims"])
def test_one_of_many_claims_of_one_key_wins(rounds: int) -> None:
    tokens = [[uuid4() for _ in range(rounds)] for _ in range(CONNECTIONS)]
    with actors(CONNECTIONS) as crowd:
        found = together(crowd, lambda number: [claim("one", token) for token in tokens[number]])
    winners = [
        token
        for mine, records in zip(tokens, found, strict=True)
        for token, record in zip(mine, records, strict=True)
        if record is None
    ]
    losers = [record for records in found for record in records if record is not None]
    assert len(winners) == 1
    assert len(losers) == CONNECTIONS * rounds - 1
    assert {(record.token, record.status) for record in losers} == {(winners[0], Status.IN_PROGRESS)}
    assert IdempotencyKey.objects.get().attempt_token == winners[0]


def test_eight_threads_and_a_hundred_keys_make_a_hundred_records() -> None:
    keys = [f"key {number}" for number in range(100)]

    def claim_all(number: int) -> int:
        mine = Random(number).sample(keys, len(keys))
        return sum(claim(key, uuid4()) is None for key in mine)

    with actors(8) as crowd:
        assert sum(together(crowd, claim_all)) == 100
    assert IdempotencyKey.objects.aggregate(rows=Count("id"), keys=Count("key", distinct=True)) == {
        "rows": 100,
        "keys": 100,
    }


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("retry", Status.FAILED_RETRYABLE),
        ("renew", Status.COMPLETED),
        ("take_over", Status.IN_PROGRESS),
        ("take_over", Status.UNKNOWN),
        ("pick_up", Status.PENDING),
        ("lapse", Status.IN_PROGRESS),
        ("enqueued_again", Status.PENDING),
        ("complete", Status.IN_PROGRESS),
        ("landed", Status.UNKNOWN),
        ("evidence", Status.DEAD_LETTER),
        ("delete", Status.COMPLETED),
        ("insert_finished", None),
        ("accept", None),
    ],
)
def test_one_of_many_wins_everything_that_can_be_won_once(name: str, status: Status | None) -> None:
    verb = BY_NAME[name]
    facts = Facts()
    record = facts.call.id
    if status is not None:
        over = {"lease over", "resumable"} | ({"retention over"} if name in ("renew", "delete") else set())
        put(status, attempt_token=facts.read_token, **columns_for(status, frozenset(over)))

    def win(number: int) -> bool:
        return again_on_deadlock(lambda: verb.run(record, Facts(read_token=facts.read_token)))

    with actors(12) as crowd:
        assert sum(together(crowd, win)) == 1
    assert (snapshot(record) is None) is (name == "delete")
