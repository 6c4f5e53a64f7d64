"""A repeat gets the one and only answer, whichever mode its endpoint is in."""

from __future__ import annotations

import pytest

from tests.acceptance.subjects import (
    EVERY,
    LEASED,
    PAYMENTS,
    TRANSFERS,
    Subject,
    is_replay,
    let_it_expire,
    new,
    quoted,
    refused_as,
    status_of,
)
from tests.kit.processes import Site

pytestmark = pytest.mark.vendor


@pytest.fixture(params=EVERY, ids=str)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


def test_a_repeat_gets_the_same_bytes_and_headers(site: Site, subject: Subject) -> None:
    account, key = new(), quoted(new())
    first, *repeats = (site.alice.post(subject.path, subject.order(account), key=key) for _ in range(3))

    assert first.status == 201
    assert all(is_replay(repeat, first) for repeat in repeats)
    assert subject.effects(site, account) == 1


def test_reordered_json_is_the_same_request(site: Site, subject: Subject) -> None:
    account, key = new(), quoted(new())
    order = {"note": "ß", **subject.order(account)}
    first = site.alice.post(subject.path, order, key=key)
    second = site.alice.post(subject.path, dict(reversed(order.items())), key=key)

    assert is_replay(second, first)
    assert subject.effects(site, account) == 1


def test_an_empty_answer_is_repeated_empty(site: Site, subject: Subject) -> None:
    account, key = new(), quoted(new())
    first, second = (site.alice.post(subject.path, subject.order(account, **subject.empty), key=key) for _ in range(2))

    assert (first.status, first.body) == (204, b"")
    assert is_replay(second, first)
    assert subject.effects(site, account) == 1


def test_another_body_is_refused_and_changes_nothing(site: Site, subject: Subject) -> None:
    account, key = new(), quoted(new())
    first = site.alice.post(subject.path, subject.order(account), key=key)

    assert refused_as(
        site.alice.post(subject.path, subject.order(account, more=1), key=key),
        422,
        "key_reused_with_different_payload",
    )
    assert is_replay(site.alice.post(subject.path, subject.order(account), key=key), first)
    assert subject.effects(site, account) == 1


@pytest.mark.parametrize("query", ["?a=1", "?"], ids=repr)
def test_another_query_is_another_request(site: Site, subject: Subject, query: str) -> None:
    account, key = new(), quoted(new())
    site.alice.post(subject.path, subject.order(account), key=key)
    other = site.alice.post(subject.path + query, subject.order(account), key=key)

    if query == "?":
        assert other.status == 201
    else:
        assert refused_as(other, 422, "key_reused_with_different_payload")
    assert subject.effects(site, account) == 1


def test_another_endpoint_has_keys_of_its_own(site: Site) -> None:
    account, key = new(), quoted(new())
    answers = [site.alice.post(subject.path, subject.order(account), key=key) for subject in EVERY]

    assert [answer.status for answer in answers] == [201] * len(EVERY)
    assert not any("Idempotency-Replayed" in answer.headers for answer in answers)
    assert PAYMENTS.effects(site, account) == 2
    assert TRANSFERS.effects(site, account) == 3


def test_another_path_of_one_route_is_another_request(site: Site) -> None:
    key = quoted(new())
    assert site.alice.post_bytes("/conformance/status/201", key=key).status == 201

    other = site.alice.post_bytes("/conformance/status/202", key=key)
    assert refused_as(other, 422, "key_reused_with_different_payload")
    assert site.anyone.get("/conformance/counter").json() == {"count": 1}


def test_an_expired_key_runs_as_new(site: Site, subject: Subject) -> None:
    account, key = new(), new()
    first = site.alice.post(subject.path, subject.order(account), key=quoted(key))
    let_it_expire(site, key)
    second, third = (site.alice.post(subject.path, subject.order(account), key=quoted(key)) for _ in range(2))

    assert second.status == 201
    assert second.body != first.body
    assert is_replay(third, second)
    # The gateway still knows the key that was derived from this one: the service books again, nobody pays again.
    assert subject.effects(site, account) == (1 if subject.charges else 2)


@pytest.mark.parametrize("subject", LEASED, ids=str)
def test_a_view_that_raises_leaves_doubt_and_never_runs_again(site: Site, subject: Subject) -> None:
    account, key = new(), new()
    order = subject.order(account, **subject.fails)
    assert site.alice.post(subject.path, order, key=quoted(key)).status == 500
    effects = subject.effects(site, account)

    again = site.alice.post(subject.path, order, key=quoted(key))

    assert refused_as(again, 409, "outcome_unknown")
    assert again.json()["safe_new_key"] is False
    assert status_of(site, key) == "unknown"
    assert subject.effects(site, account) == effects == (1 if subject.charges else 0)


def test_an_atomic_view_that_raises_leaves_nothing(site: Site) -> None:
    account, key = new(), new()
    order = TRANSFERS.order(account, **TRANSFERS.fails)
    answers = [site.alice.post(TRANSFERS.path, order, key=quoted(key)).status for _ in range(2)]

    assert answers == [500, 500]
    assert status_of(site, key) is None
    assert TRANSFERS.effects(site, account) == 0
