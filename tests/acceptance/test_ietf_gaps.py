"""What the draft leaves open, and this project's answer to each; docs/reference/ietf.md lists them."""

from __future__ import annotations

import pytest

from testproject.http import Answer
from tests.acceptance.subjects import (
    LATE,
    PAYMENTS,
    is_replay,
    let_it_expire,
    new,
    quoted,
    records,
    refused_as,
    status_of,
)
from tests.kit.journal import Journal
from tests.kit.processes import Site

pytestmark = pytest.mark.parametrize("site", ["off"], indirect=True)


def status(site: Site, code: int, key: str) -> Answer:
    return site.anyone.post_bytes(f"/conformance/status/{code}", key=key)


def answers(site: Site, kind: str, account: str, key: str, body: bytes = b"one") -> Answer:
    return site.anyone.post_bytes(f"/answers/{kind}?account={account}", body, key=key)


@pytest.mark.parametrize("path", ["/payments/", "/async/payments/", "/transfers/"])
def test_gap_errors_are_problem_details(site: Site, path: str) -> None:
    answer = site.alice.post(path, {}, key=None)
    problem = answer.json()

    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (problem["status"], problem["type"], bool(problem["title"]), bool(problem["detail"])) == (
        400,
        "/idempotency/rules/#idempotency_key_missing",
        True,
        True,
    )


def test_gap_a_key_on_a_safe_method_is_not_stored(site: Site) -> None:
    key, before = new(), records(site)

    assert site.alice.get("/payments/", idempotency_key=quoted(key)).status == 200
    assert (status_of(site, key), records(site)) == (None, before)


def test_gap_an_empty_key_is_refused(site: Site) -> None:
    assert refused_as(status(site, 201, '""'), 400, "key_invalid")
    assert site.executions() == 0


def test_gap_a_replay_is_marked(site: Site) -> None:
    key = quoted(new())
    first, second = (status(site, 201, key) for _ in range(2))

    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"


def test_gap_a_conflict_says_when_to_come_back(site: Site) -> None:
    account, key = new(), new()
    with LATE.running(site, account, key):
        early = site.alice.post(LATE.path, LATE.order(account), key=quoted(key))

    assert early.status == 409
    assert early.headers["Retry-After"] in ("1", "2")


def test_gap_a_returned_5xx_is_stored(site: Site) -> None:
    key = quoted(new())
    first, second = (status(site, 503, key) for _ in range(2))

    assert first.status == 503
    assert is_replay(second, first)
    assert site.executions() == 1


def test_gap_an_exception_is_doubt_unless_the_policy_stores_it(site: Site) -> None:
    account, key = new(), quoted(new())
    order = PAYMENTS.order(account, **PAYMENTS.fails)
    assert site.alice.post(PAYMENTS.path, order, key=key).status == 500
    assert refused_as(site.alice.post(PAYMENTS.path, order, key=key), 409, "outcome_unknown")

    first, second = (answers(site, "fails", account, key) for _ in range(2))
    assert first.status == 500
    assert is_replay(second, first)
    assert Journal(site.service.log.parent).count(account) == 1


def test_gap_a_4xx_is_stored_unless_the_policy_releases_it(site: Site) -> None:
    account, key = new(), quoted(new())
    first, second = (status(site, 404, key) for _ in range(2))
    assert is_replay(second, first)

    assert answers(site, "corrected", account, key, b"0").status == 422
    assert answers(site, "corrected", account, key, b"0").status == 422
    assert Journal(site.service.log.parent).count(account) == 2


def test_gap_a_bare_key_is_the_quoted_one_and_refused_where_strict(site: Site) -> None:
    account, key = new(), new()
    first = status(site, 201, quoted(key))

    assert is_replay(status(site, 201, key), first)
    assert refused_as(answers(site, "strict", account, key), 400, "key_invalid")
    assert answers(site, "strict", account, quoted(key)).status == 201


def test_gap_a_malformed_string_is_refused(site: Site) -> None:
    for malformed in ('"a', 'a"', '"a"b', '"a\\b"'):
        assert refused_as(status(site, 201, malformed), 400, "key_invalid")
    assert site.executions() == 0


@pytest.mark.parametrize("length", [1, 255])
def test_gap_a_key_has_1_to_255_characters(site: Site, length: int) -> None:
    site.rows("DELETE FROM idempotency_key WHERE request_path = %s", "/conformance/status/201")

    assert status(site, 201, quoted("k" * length)).status == 201
    assert refused_as(status(site, 201, quoted("k" * 256)), 400, "key_invalid")
    assert site.executions() == 1


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/conformance/echo?a=1", b"{}", "application/json"),
        ("/conformance/echo", b"[]", "application/json"),
        ("/conformance/echo", b"{}", "text/plain"),
    ],
    ids=["query", "body", "media type"],
)
def test_gap_the_fingerprint_covers_query_body_and_media_type(
    site: Site, path: str, body: bytes, content_type: str
) -> None:
    key = quoted(new())
    site.anyone.post_bytes("/conformance/echo", b"{}", key=key, content_type="application/json")
    other = site.anyone.post_bytes(path, body, key=key, content_type=content_type)

    assert refused_as(other, 422, "key_reused_with_different_payload")


def test_gap_the_fingerprint_covers_the_path(site: Site) -> None:
    key = quoted(new())
    status(site, 201, key)

    assert refused_as(status(site, 202, key), 422, "key_reused_with_different_payload")


def test_gap_a_mismatch_changes_nothing(site: Site) -> None:
    account, key = new(), new()
    first = site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=quoted(key))
    row = "SELECT * FROM idempotency_key WHERE idempotency_key.key = %s"
    before = site.rows(row, key)
    mismatch = site.alice.post(PAYMENTS.path, PAYMENTS.order(account, amount=1), key=quoted(key))

    assert mismatch.status == 422
    assert site.rows(row, key) == before
    assert is_replay(site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=quoted(key)), first)


def test_gap_an_expired_key_runs_as_new_or_is_gone(site: Site) -> None:
    account, key, other = new(), new(), new()
    for kind, each in (("gone", key), ("buffered", other)):
        assert answers(site, kind, account, quoted(each)).status == 201
        let_it_expire(site, each)

    assert refused_as(answers(site, "gone", account, quoted(key)), 410, "key_expired")
    assert "Idempotency-Replayed" not in answers(site, "buffered", account, quoted(other)).headers
    assert Journal(site.service.log.parent).count(account) == 3


def test_gap_the_scope_is_the_person_and_the_operation(site: Site) -> None:
    key = new()
    for who in (site.alice, site.bob):
        for subject in (PAYMENTS, LATE):
            assert who.post(subject.path, subject.order(new()), key=quoted(key)).status == 201

    scopes = site.rows("SELECT k.principal, k.operation FROM idempotency_key k WHERE k.key = %s", key)
    assert len(set(scopes)) == 4
    assert {operation for _, operation in scopes} == {"payments.create", "bookings.late"}


def test_gap_an_oversize_result_is_told_to_be_done_and_not_made_again(site: Site) -> None:
    key, path = quoted(new()), f"/conformance/large?bytes={1024 * 1024 + 1}"
    first, second = (site.anyone.post_bytes(path, key=key) for _ in range(2))

    told = second.json()
    assert (second.status, told["code"], told["first_status"]) == (409, "idempotency_response_not_stored", first.status)
    assert site.executions() == 1


def test_gap_every_refusal_has_a_stable_code(site: Site) -> None:
    key = quoted(new())
    status(site, 201, key)

    assert refused_as(site.anyone.post_bytes("/conformance/echo", key=None), 400, "key_missing")
    assert refused_as(status(site, 201, '"'), 400, "key_invalid")
    assert refused_as(status(site, 202, key), 422, "key_reused_with_different_payload")


def test_gap_a_policy_says_whether_the_header_is_required(site: Site) -> None:
    form = b"amount=2500&currency=eur&source=tok_visa"
    given = {"authorization": "Bearer sk_test_alice", "content_type": "application/x-www-form-urlencoded"}

    assert site.anyone.post_bytes("/v1/charges", form, key=None, **given).status == 200
    assert refused_as(site.alice.post(PAYMENTS.path, PAYMENTS.order(new()), key=None), 400, "key_missing")
    assert len(site.charges()) == 1
