"""Whose key it is: nothing crosses from one person to another, and nothing is given before somebody was let in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.acceptance.subjects import EVERY, PAYMENTS, WHOLE, Subject, is_replay, new, quoted, records
from tests.kit.processes import Site


@pytest.fixture(params=EVERY, ids=str)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


def test_two_people_with_one_key_get_two_effects(site: Site, subject: Subject) -> None:
    account, key = new(), quoted(new())
    alice, bob = (who.post(subject.path, subject.order(account), key=key) for who in (site.alice, site.bob))

    assert (alice.status, bob.status) == (201, 201)
    assert alice.body != bob.body
    assert "Idempotency-Replayed" not in bob.headers
    assert subject.effects(site, account) == 2
    assert is_replay(site.bob.post(subject.path, subject.order(account), key=key), bob)
    assert is_replay(site.alice.post(subject.path, subject.order(account), key=key), alice)


@pytest.mark.parametrize("authorization", ["", "Token nobody", "Token bob-tokens"])
def test_the_owners_key_without_credentials_tells_nothing(site: Site, subject: Subject, authorization: str) -> None:
    account, key = new(), quoted(new())
    site.alice.post(subject.path, subject.order(account), key=key)
    stranger = replace(site.anyone, authorization=authorization)
    known, unknown = (stranger.post(subject.path, subject.order(account), key=each) for each in (key, quoted(new())))

    assert known.status in (401, 403)
    assert (known.status, known.body) == (unknown.status, unknown.body)
    assert subject.effects(site, account) == 1


def test_a_stranger_who_comes_first_takes_nothing_from_the_owner(site: Site, subject: Subject) -> None:
    account, key, before = new(), quoted(new()), records(site)
    assert site.anyone.post(subject.path, subject.order(account), key=key).status in (401, 403)
    assert records(site) == before

    assert site.alice.post(subject.path, subject.order(account), key=key).status == 201
    assert subject.effects(site, account) == 1


def test_a_new_token_of_the_same_person_gets_the_same_answer(site: Site) -> None:
    account, key = new(), quoted(new())
    first = site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=key)
    with token_renamed(site, "alice-token", "alice-token-2"):
        assert site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=key).status == 401
        renewed = replace(site.anyone, authorization="Token alice-token-2")
        assert is_replay(renewed.post(PAYMENTS.path, PAYMENTS.order(account), key=key), first)
    assert PAYMENTS.effects(site, account) == 1


@contextmanager
def token_renamed(site: Site, old: str, new: str) -> Iterator[None]:
    rename = "UPDATE authtoken_token SET key = %s WHERE authtoken_token.key = %s"
    if site.database_url.startswith(("mysql", "mariadb")):
        rename = rename.replace("SET key", "SET authtoken_token.key")
    site.rows(rename, new, old)
    try:
        yield
    finally:
        site.rows(rename, old, new)


def session_of(site: Site, name: str) -> dict[str, str]:
    """The header by which somebody who logged in is known."""
    answer = site.anyone.post("/login", {"name": name})
    cookies = [cookie.partition(";")[0] for cookie in answer.headers.get_all("Set-Cookie", [])]
    return {"Cookie": next(cookie for cookie in cookies if cookie.startswith("sessionid="))}


def test_sessions_of_two_people_share_nothing_and_those_of_one_do(site: Site) -> None:
    account, key, path = new(), quoted(new()), "/bookings/session"
    alice, bob, alices_other = (session_of(site, name) for name in ("alice", "bob", "alice"))
    first, others, again, refused = (
        site.anyone.post(path, WHOLE.order(account), key=key, headers=session)
        for session in (alice, bob, alices_other, None)
    )

    assert (first.status, others.status, refused.status) == (201, 201, 403)
    assert first.body != others.body
    assert is_replay(again, first)
    assert WHOLE.effects(site, account) == 2
