"""Every kind of answer comes back as it was, or is marked where its body was not kept."""

from __future__ import annotations

import pytest

from testproject.http import Answer
from tests.acceptance.subjects import is_replay, lasting, let_it_expire, new, quoted, refused_as
from tests.kit.journal import Journal
from tests.kit.processes import Site

pytestmark = pytest.mark.vendor

CAP = 1024 * 1024


def post(site: Site, kind: str, account: str, key: str, body: bytes = b"one") -> Answer:
    return site.anyone.post_bytes(f"/answers/{kind}?account={account}", body, key=quoted(key))


@pytest.fixture
def account() -> str:
    return new()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (bytes(range(256)), "application/octet-stream"),
        ("grüße".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        (b"", "application/x-nothing"),
    ],
    ids=["every_byte", "latin_1", "nothing"],
)
def test_bytes_come_back_as_they_were(site: Site, body: bytes, content_type: str) -> None:
    key = quoted(new())
    first, second = (
        site.anyone.post_bytes("/conformance/echo", body, key=key, content_type=content_type) for _ in range(2)
    )

    assert first.body == body
    assert is_replay(second, first)
    assert site.anyone.get("/conformance/counter").json() == {"count": 1}


@pytest.mark.parametrize("size", [CAP, CAP + 1])
def test_an_answer_beyond_the_cap_is_told_to_be_done_and_never_made_again(site: Site, size: int) -> None:
    key, path = quoted(new()), f"/conformance/large?bytes={size}"
    first, second = (site.anyone.post_bytes(path, key=key) for _ in range(2))

    assert first.body == b"x" * size
    if size == CAP:
        assert is_replay(second, first)
    else:
        assert (second.status, second.json()["effect"]) == (409, "done")
    assert site.anyone.get("/conformance/counter").json() == {"count": 1}


@pytest.mark.parametrize(
    ("kind", "body"), [("stream", b"one,two"), ("file", b"content"), ("page", b"<p>Ada &amp; Grace</p>")]
)
def test_a_stream_a_file_and_a_page_come_back_whole(
    site: Site, journal: Journal, account: str, kind: str, body: bytes
) -> None:
    key = new()
    first, second = (post(site, kind, account, key) for _ in range(2))

    assert first.body == second.body == body
    assert second.headers["Idempotency-Replay"] is None
    assert second.headers["Content-Type"] == first.headers["Content-Type"]
    assert second.headers["Content-Disposition"] == first.headers["Content-Disposition"]
    assert journal.count(account) == 1


def test_what_belongs_to_one_caller_is_not_given_to_the_next(site: Site, account: str) -> None:
    key = new()
    first, second = (post(site, "cookie", account, key) for _ in range(2))

    assert "session=secret" in first.headers["Set-Cookie"]
    lost = lasting(first).keys() - lasting(second).keys()
    assert lost == {"Set-Cookie", "WWW-Authenticate", "X-Request-Id"}
    assert second.headers["ETag"] == first.headers["ETag"]
    assert second.body == first.body


def test_an_expired_key_is_gone_where_that_is_declared(site: Site, journal: Journal, account: str) -> None:
    key = new()
    assert post(site, "gone", account, key).status == 201
    let_it_expire(site, key)

    assert refused_as(post(site, "gone", account, key), 410, "key_expired")
    assert refused_as(post(site, "gone", account, key, b"another body"), 410, "key_expired")
    assert journal.count(account) == 1
