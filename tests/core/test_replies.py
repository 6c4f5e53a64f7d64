"""What of an answer is stored, and what comes back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idempotency import Reply, ReplyRule, json_reply
from django_idempotency.core.replies import (
    NEVER_STORED,
    NEVER_STORED_KINDS,
    STANDARD_HEADERS,
    capture,
    dump_headers,
    load_headers,
)
from django_idempotency.exceptions import UnreadableReply

EVERYTHING = [
    ("Content-Type", "application/json"),
    ("Content-Length", "2"),
    ("Set-Cookie", "session=secret"),
    ("Set-Cookie", "csrftoken=secret"),
    ("Authorization", "Bearer secret"),
    ("WWW-Authenticate", "Bearer"),
    ("Proxy-Authenticate", "Basic"),
    ("X-CSRFToken", "secret"),
    ("Date", "Wed, 18 Nov 2026 12:00:00 GMT"),
    ("Connection", "close"),
    ("Transfer-Encoding", "chunked"),
    ("X-Internal", "secret"),
    ("Location", "/payments/1"),
    ("Link", '</payments/1>; rel="self"'),
    ("link", '</payments>; rel="up"'),
]
INTERNAL = ("X-Internal", "secret")
KEPT = (
    ("Content-Type", "application/json"),
    ("Location", "/payments/1"),
    ("Link", '</payments/1>; rel="self"'),
    ("link", '</payments>; rel="up"'),
)


STRICT = ReplyRule(headers=STANDARD_HEADERS)


def test_the_headers_that_the_view_set_are_kept_in_order_and_with_repetitions() -> None:
    cost = ("X-Request-Cost", "7")
    assert capture(201, [*EVERYTHING, cost], b"{}", ReplyRule()).headers == (*KEPT[:1], INTERNAL, *KEPT[1:], cost)


def test_the_strict_list_keeps_nothing_else() -> None:
    assert capture(201, EVERYTHING, b"{}", STRICT) == Reply(201, KEPT, b"{}")


def test_the_list_can_be_extended() -> None:
    reply = capture(201, EVERYTHING, b"{}", ReplyRule(headers=STANDARD_HEADERS, extra_headers=["X-Internal"]))
    assert INTERNAL in reply.headers
    assert set(KEPT) < set(reply.headers)


def test_the_list_can_be_replaced() -> None:
    assert capture(201, EVERYTHING, b"{}", ReplyRule(headers=["LOCATION"])).headers == (("Location", "/payments/1"),)
    assert capture(201, EVERYTHING, b"{}", ReplyRule(headers=())).headers == ()


LOOK_PRIVATE = [
    "X-Auth-Token",
    "X-Access-Token",
    "Refresh-Token",
    "X-Api-Key",
    "ApiKey",
    "X-Amz-Security-Token",
    "X-Session-Id",
    "Session",
    "X-Secret",
    "Client-Secret",
    "X-Password",
    "X-Credentials",
    "X-OTP",
    "X-JWT",
    "Signature",
    "X-Cookie-Consent",
    "Key",
    "X-Request-ID",
    "X-Correlation-ID",
    "Traceparent",
    "Tracestate",
    "Server-Timing",
    "X-Runtime",
    "X-RateLimit-Remaining",
    "RateLimit",
]


LOOK_HARMLESS = [
    "X-Custom", "X-Request-Cost", "X-Total-Count", "ETag", "Monkey", "X-Carbon-Footprint", "Content-Location"
]  # fmt: skip


def test_what_sounds_private_is_stored_only_where_it_is_named() -> None:
    every = [(name, "1") for name in (*LOOK_PRIVATE, *LOOK_HARMLESS)]
    assert [name for name, _ in capture(201, every, b"", ReplyRule()).headers] == LOOK_HARMLESS
    assert capture(201, every, b"", ReplyRule(extra_headers=LOOK_PRIVATE)).headers == tuple(every)
    alone = {name: capture(201, [(name, "1")], b"", ReplyRule(extra_headers=[name])).headers for name in LOOK_PRIVATE}
    assert [name for name, headers in alone.items() if headers != ((name, "1"),)] == []


@given(st.sampled_from(sorted(NEVER_STORED)), st.booleans(), st.booleans())
def test_what_is_never_stored_is_not_stored_by_any_rule(name: str, capitals: bool, strict: bool) -> None:
    assert (
        capture(200, [(name.title() if capitals else name, "x")], b"", STRICT if strict else ReplyRule()).headers == ()
    )


UNTIMED = settings(deadline=None)  # a busy machine is no failure
CAP = 1024 * 1024
BODIES = [
    ("stored", ReplyRule(), b"\x00\xff", b"\x00\xff"),
    ("empty", ReplyRule(), b"", b""),
    ("at the default cap", ReplyRule(), b"a" * CAP, b"a" * CAP),
    ("over the default cap", ReplyRule(), b"a" * (CAP + 1), None),
    ("at a cap", ReplyRule(max_body=2), b"ab", b"ab"),
    ("over a cap", ReplyRule(max_body=2), b"abc", None),
    ("no bodies, one byte", ReplyRule(body=False), b"a", None),
    ("no bodies, none there", ReplyRule(body=False), b"", b""),
    ("no byte allowed, none there", ReplyRule(max_body=0), b"", b""),
    ("cannot be stored", ReplyRule(), None, None),
]


@pytest.mark.parametrize("row", BODIES, ids=lambda row: row[0])
def test_a_body_is_stored_or_marked_as_omitted(row: tuple[str, ReplyRule, bytes | None, bytes | None]) -> None:
    _, rule, body, stored = row
    reply = capture(200, [], body, rule)
    assert reply.body == stored
    assert reply.omitted is (stored is None)


@pytest.mark.parametrize("name", ["Content-Encoding", "Content-Digest", "Repr-Digest"])
def test_headers_about_the_bytes_go_with_the_bytes(name: str) -> None:
    assert capture(200, [(name, "x")], b"ab", ReplyRule(max_body=2)).headers == ((name, "x"),)
    assert capture(200, [(name, "x")], b"abc", ReplyRule(max_body=2)).headers == ()


def test_the_schema_version_goes_with_the_reply() -> None:
    assert capture(200, [], b"", ReplyRule(schema_version=3)).schema_version == 3


NEVER = [
    "Set-Cookie",
    "set-cookie2",
    "Cookie",
    "Authorization",
    "Authentication-Info",
    "WWW-Authenticate",
    "Proxy-Authenticate",
    "Proxy-Connection",
    "X-CSRFToken",
    "X-CSRF-Token",
    "X-XSRF-TOKEN",
    "Date",
    "Age",
    "Connection",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Content-Length",
    "Clear-Site-Data",
    "Server",
    "Via",
]


@pytest.mark.parametrize("argument", ["headers", "extra_headers"])
def test_what_is_never_stored_cannot_be_allowed(argument: str) -> None:
    for name in NEVER:
        arguments: dict[str, Any] = {argument: ["Location", name]}
        with pytest.raises(ValueError, match=f"^{argument} must not contain {name.lower()}:"):
            ReplyRule(**arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"headers": "location"}, "headers must be"),
        ({"extra_headers": ["x header"]}, "extra_headers holds 'x header'"),
        ({"extra_headers": [""]}, "extra_headers holds ''"),
        ({"max_body": -1}, "max_body must be"),
        ({"schema_version": 0}, "schema_version must be"),
    ],
)
def test_a_wrong_rule_names_its_argument(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        ReplyRule(**arguments)


def test_rules_that_allow_the_same_are_equal() -> None:
    assert ReplyRule(headers=["X-B"], extra_headers=["X-A"]) == ReplyRule(headers=["x-b", "x-a"])
    assert ReplyRule(extra_headers=["X-A", "x-b"]) == ReplyRule(extra_headers=["X-B", "x-a"])
    assert hash(ReplyRule()) == hash(ReplyRule())


def test_headers_are_stored_as_compact_ascii() -> None:
    text = dump_headers(Reply(200, (("Link", "</é>"), ("Link", "</b>")), b""))
    assert text == r'[["Link","</\u00e9>"],["Link","</b>"]]'


@pytest.mark.parametrize("name", ["Set-Cookie", "Authorization", "DATE", "Proxy-Status", "X-CSRFToken"])
def test_a_private_header_of_a_reply_that_somebody_made_is_not_stored(name: str) -> None:
    reply = json_reply(201, {}, [(name, "mine"), ("X-Odd", "1")])
    assert load_headers(dump_headers(reply)) == (("Content-Type", "application/json"), ("X-Odd", "1"))


def is_storable(name: str) -> bool:
    return name.lower() not in NEVER_STORED and not NEVER_STORED_KINDS.match(name.lower())


@UNTIMED
@given(st.lists(st.tuples(st.text().filter(is_storable), st.text())))
def test_headers_come_back_as_they_were(pairs: list[tuple[str, str]]) -> None:
    text = dump_headers(Reply(200, tuple(pairs), b""))
    assert load_headers(text) == tuple(pairs)
    assert text.isascii()
    assert text.isprintable()


MALFORMED = ["", "{", "null", "{}", "1", '["ab"]', '[["a"]]', '[["a","b","c"]]', '[["a",1]]', "[" * 100_000]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:20])
def test_headers_that_cannot_be_read_are_said_so(text: str) -> None:
    with pytest.raises(UnreadableReply, match="withheld"):
        load_headers(text)
