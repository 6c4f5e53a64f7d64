"""Many clients at once. Whoever has to be slow is held until the others were answered."""

from __future__ import annotations

from functools import partial

import pytest

from tests.acceptance.subjects import (
    ATOMIC,
    EVERY,
    LATE,
    LEASED,
    PAYMENTS,
    TRANSFERS,
    Subject,
    is_replay,
    new,
    quoted,
    refused_as,
    status_of,
)
from tests.kit.processes import Site
from tests.kit.threads import at_once

pytestmark = pytest.mark.vendor

SLOW_TO_REFUSE = "only PostgreSQL has a lock that tells a duplicate of an open transaction from the first request"


@pytest.mark.parametrize("subject", LEASED, ids=str)
def test_fifty_at_once_with_one_key(site: Site, subject: Subject) -> None:
    account, key = new(), new()
    order = subject.order(account)
    with subject.running(site, account, key) as first:
        others = at_once([partial(site.alice.post, subject.path, order, key=quoted(key))] * 49)
        assert not first.done()

    assert all(refused_as(answer, 409, "key_in_progress") for answer in others)
    assert {answer.headers["Retry-After"] for answer in others} <= {"1", "2"}
    assert first.result().status == 201
    assert subject.effects(site, account) == 1
    assert is_replay(site.alice.post(subject.path, order, key=quoted(key)), first.result())


def test_fifty_at_once_with_one_key_in_atomic_mode(site: Site, vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip(SLOW_TO_REFUSE)
    account, key = new(), new()
    with ATOMIC.running(site, account, key) as first:
        others = at_once([partial(site.alice.post, ATOMIC.path, ATOMIC.order(account), key=quoted(key))] * 49)
        assert not first.done()

    assert all(refused_as(answer, 409, "key_in_progress") for answer in others)
    assert first.result().status == 201
    assert ATOMIC.effects(site, account) == 1


def test_an_atomic_key_takes_effect_once_however_the_race_ends(site: Site) -> None:
    account, key = new(), new()
    answers = at_once([partial(site.alice.post, TRANSFERS.path, TRANSFERS.order(account), key=quoted(key))] * 20)

    assert {answer.status for answer in answers} <= {201, 409, 503}
    assert len({answer.body for answer in answers if answer.status == 201}) == 1
    assert TRANSFERS.effects(site, account) == 1


@pytest.mark.parametrize("subject", EVERY, ids=str)
def test_fifty_at_once_with_fifty_keys(site: Site, subject: Subject, vendor: str) -> None:
    if vendor == "sqlite" and not subject.late:
        pytest.skip("SQLite has one writer: fifty whole transactions at once are beyond its claim's time limit")
    account = new()
    answers = at_once([partial(site.alice.post, subject.path, subject.order(account))] * 50)

    assert [answer.status for answer in answers] == [201] * 50
    assert len({answer.body for answer in answers}) == 50
    assert subject.effects(site, account) == 50


@pytest.mark.parametrize("subject", [PAYMENTS, LATE], ids=str)
def test_eighty_duplicates_of_a_slow_request_hold_nobody_up(site: Site, subject: Subject) -> None:
    """More of them than the server has threads. The unrelated request goes to a view that nobody holds."""
    account, key, other = new(), new(), new()
    duplicate = partial(site.alice.post, subject.path, subject.order(account), key=quoted(key))
    unrelated = partial(site.bob.post, TRANSFERS.path, TRANSFERS.order(other))
    with subject.running(site, account, key) as first:
        *refused, served = at_once([*[duplicate] * 80, unrelated])
        assert not first.done()

    assert served.status == 201
    assert all(refused_as(answer, 409, "key_in_progress") for answer in refused)
    assert first.result().status == 201
    assert status_of(site, key) == "completed"
    assert subject.effects(site, account) == 1
