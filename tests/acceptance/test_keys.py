"""Odd keys: each is refused before anything is looked up, stored or run, or taken byte for byte."""

from __future__ import annotations

import base64

import pytest

from tests.acceptance.raw import post_lines, with_key
from tests.acceptance.subjects import new, records, refused_as
from tests.kit.journal import Journal
from tests.kit.processes import Site

pytestmark = [pytest.mark.parametrize("site", ["off"], indirect=True), pytest.mark.vendor]

REFUSED = {
    "empty": [b""],
    "empty_string": [b'""'],
    "white_space": [b"   "],
    "white_space_in_quotes": [b'"   "'],
    "inner_space": [b"a b"],
    "tab": [b"a\tb"],
    "tab_in_quotes": [b'"a\tb"'],
    "cr": [b"a\rb"],
    "lf": [b"a\nb"],
    "nul": [b"a\x00b"],
    "del": [b"a\x7fb"],
    "bell": [b'"a\x07b"'],
    "escape": [b"a\x1bb"],
    "latin_1": ["é".encode("latin-1")],
    "utf_8": ["é".encode()],
    "utf_8_in_quotes": ['"é"'.encode()],
    "decomposed": ["e\u0301".encode()],
    "lone_surrogate": [b"\xed\xa0\x80"],
    "too_long": [b"k" * 256],
    "far_too_long": [b"k" * 8000],
    "two_lines": [b'"a"', b'"b"'],
    "two_equal_lines": [b"a", b"a"],
    "list": [b'"a", "b"'],
    "bare_list": [b"a,b"],
    "unclosed_quote": [b'"a'],
    "inner_quote": [b'a"b'],
    "after_the_quote": [b'"a"b'],
    "unknown_escape": [b'"a\\b"'],
    "bare_semicolon": [b"a;b"],
}
REFUSED_WHERE_STRICT = {
    "bare": b"abc",
    "integer": b"17",
    "decimal": b"1.5",
    "boolean": b"?1",
    "byte_sequence": b":YWJj:",
    "date": b"@1659578233",
    "inner_list": b'("a" "b")',
}
ACCEPTED = {
    "one_character": b"k",
    "255_characters": b"k" * 255,
    "255_in_quotes": b'"' + b"k" * 255 + b'"',
    "escaped_quote": rb'"a\"b"',
    "escaped_backslash": rb'"a\\b"',
    "space_in_quotes": b'"a b"',
    "comma_in_quotes": b'"a,b"',
    "uuid": b"8e03978e-40d5-43dd-bc93-6894a57f9324",
    "ulid": b"01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "base64": base64.b64encode(b"sixteen random b"),
}
PAIRS = {
    "quoted_and_bare": (b'"%b"', b"%b", True),
    "with_a_parameter": (b'"%b"', b'"%b";p=1', True),
    "surrounding_space": (b'"%b"', b'  "%b"  ', True),
    "upper_and_lower_case": (b'"k%b"', b'"K%b"', False),
    "inner_and_no_space": (b'"%b "', b'"%b"', False),
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_an_odd_key_is_refused(site: Site, values: list[bytes]) -> None:
    before = records(site)

    answer = post_lines(site, "/conformance/echo", with_key(*values))

    assert answer.status == 400
    if answer.headers["Content-Type"] == "application/problem+json":  # else the HTTP server itself refused it
        assert refused_as(answer, 400, "key_invalid")
        assert b"kkk" not in answer.body
    assert (site.executions(), records(site)) == (0, before)


@pytest.mark.parametrize("value", REFUSED_WHERE_STRICT.values(), ids=REFUSED_WHERE_STRICT)
def test_what_is_no_string_is_refused_where_strict(site: Site, value: bytes) -> None:
    before, account = records(site), new()

    answer = post_lines(site, f"/answers/strict?account={account}", with_key(value))

    assert refused_as(answer, 400, "key_invalid")
    assert Journal(site.service.log.parent).count(account) == 0
    assert records(site) == before


@pytest.mark.parametrize("value", ACCEPTED.values(), ids=ACCEPTED)
def test_a_legal_key_is_taken(site: Site, value: bytes) -> None:
    site.rows("DELETE FROM idempotency_key WHERE request_path = %s", "/conformance/echo")
    first, second = (post_lines(site, "/conformance/echo", with_key(value)) for _ in range(2))

    assert (first.status, second.status) == (201, 201)
    assert ("Idempotency-Replayed" in first.headers, second.headers["Idempotency-Replayed"]) == (False, "true")
    assert site.executions() == 1


@pytest.mark.parametrize(("one", "other", "same"), PAIRS.values(), ids=PAIRS)
def test_two_spellings_are_one_key_or_two(site: Site, one: bytes, other: bytes, same: bool) -> None:
    key = new().encode()
    answers = [post_lines(site, "/conformance/echo", with_key(spelling % key)) for spelling in (one, other)]

    assert [answer.status for answer in answers] == [201, 201]
    assert ("Idempotency-Replayed" in answers[1].headers) == same
    assert site.executions() == (1 if same else 2)
