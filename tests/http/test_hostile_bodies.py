"""A body that the server cannot trust costs no more work than the same bytes as plain text."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from django.test import RequestFactory
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idempotency import Policy
from django_idempotency.core.canonical import drop_fields
from django_idempotency.core.fingerprint import URLENCODED, Part
from django_idempotency.exceptions import InvalidKey
from django_idempotency.http.forms import NOT_FINGERPRINTED
from django_idempotency.http.requests import call_from, request_parts

POLICY = Policy(operation="pay")
SIZE = 200_000


def fingerprint(content_type: str, body: bytes) -> str:
    """The fingerprint of a request over HTTP; everything that is done before the key is looked up."""
    request = RequestFactory().generic("POST", "/payments/", body, content_type)
    return call_from(request, ["k"], POLICY, "user:1").fingerprint


@contextmanager
def count_calls() -> Iterator[list[int]]:
    """Count every call of a function, of Python's or of C's."""
    counted = [0]

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted[0] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def count_work(content_type: str, body: bytes) -> int:
    fingerprint(content_type, body)  # what is done once in a process
    with count_calls() as counted:
        fingerprint(content_type, body)
    return counted[0]


def measure_memory(content_type: str, body: bytes) -> int:
    """The most memory that the fingerprint needed at one time, in bytes."""
    request = RequestFactory().generic("POST", "/payments/", body, content_type)
    tracemalloc.start()
    try:
        call_from(request, ["k"], POLICY, "user:1")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "ampersands": lambda size: b"&" * size,
    "names": lambda size: b"a&" * (size // 2),
    "equals signs": lambda size: b"=&" * (size // 2),
    "a percent-encoded name": lambda size: b"%41" * (size // 3),
    "a percent-encoded value": lambda size: b"a=" + b"%41" * (size // 3),
    "percent signs": lambda size: b"%&" * (size // 2),
    "encoded names of the token's length": lambda size: (b"%41" * 19 + b"&") * (size // 58),
    "tokens": lambda size: b"csrfmiddlewaretoken&" * (size // 20),
    "plus signs": lambda size: b"+" * size,
}


def test_the_work_for_a_form_is_bounded_by_its_first_fields_and_does_not_grow_with_its_size() -> None:
    for name, make in HOSTILE.items():
        work = count_work(URLENCODED, make(SIZE))
        assert count_work(URLENCODED, make(2 * SIZE)) == work, name
        assert work - count_work("text/plain", make(SIZE)) < 3 * 1000, name


def test_a_form_needs_no_more_memory_than_plain_text() -> None:
    """A form with a token is copied once, without it."""
    for name, make in HOSTILE.items():
        body, most = make(10 * SIZE), 2.1 if name == "tokens" else 1.5
        assert measure_memory(URLENCODED, body) <= most * measure_memory("text/plain", body), name


@pytest.mark.parametrize("size", [1_998, 2_000, 65_536])
def test_a_small_form_with_many_fields_is_compared_byte_for_byte(size: int) -> None:
    many = b"a&" * (size // 2)
    assert count_work(URLENCODED, many) - count_work("text/plain", many) < 28 * 1000
    assert (len(split(fingerprint(URLENCODED, many))[1]) == 0) == (size >= 2_000)


PINNED = {
    "json": (
        "application/json",
        b'{"b": 2, "a": 1.50}',
        "v2::EFk86Ssg1L07b6a9LXNrcM:7HGwtdq4zmvemEQmAxrnkT",
    ),
    "form": (
        URLENCODED,
        b"b=2&a=1&a=0&csrfmiddlewaretoken=abc&_idempotency_key=k&c",
        "v2::64DsWwd4vVn8GYB6o_gqgN:S9rS1qxTp43wbeeeas9ulb",
    ),
    "token first": (
        URLENCODED,
        b"csrfmiddlewaretoken=abc&amount=700&note=two+words%21",
        "v2::g3Pqb6K6wbGCdMMUOkkJV_:lYBYlzYgaM0-mvD98indGZ",
    ),
    "only tokens": (
        URLENCODED,
        b"csrfmiddlewaretoken=abc&_idempotency_key=k",
        "v2::aojI7LusYWWFK_zD9Le89f:",
    ),
    "encoded token": (
        URLENCODED,
        b"a=1&%63srfmiddlewaretoken=abc&%5fidempotency%5Fkey=k&b=2",
        "v2::JtT1cwbu7h1B7B9MLDtA8t:ODjR68DS18U1jECmnS5W-K",
    ),
    "empty pairs": (
        URLENCODED,
        b"&a=1&&b=2&",
        "v2::LqwWFl0f1RzYXo5pSuDaDy:ODjR68DS18U1jECmnS5W-K",
    ),
    "empty": (
        URLENCODED,
        b"",
        "v2::eJFJy2eWkkiBf35Y1r5ZuQ:",
    ),
    "large form": (
        URLENCODED,
        b"csrfmiddlewaretoken=abc&note=" + b"x" * 70000 + b"&_idempotency_key",
        "v2::9DcaOC481NN1kfnvKZDHEq:",
    ),
    "many fields": (
        URLENCODED,
        b"&".join(b"item%d=%d" % (each, each) for each in range(900)),
        "v2::4AvT5T7gGPEmMqlsl7Q2sQ:xUB2PRlzbyBwBCOgHWycHj",
    ),
    "text": (
        "text/plain",
        b"a&b=c",
        "v2::odDIjE3gE68oLwGMWTxM39:",
    ),
    "multipart": (
        MULTIPART_CONTENT,
        encode_multipart(BOUNDARY, {"a": "1", "csrfmiddlewaretoken": "x", "b": "2"}),
        "v2::psBfKMWzxGrczYCjaQ21ws:BwaRiDMSFywmHUNELW4yqI",
    ),
}


def test_the_digests_of_ordinary_requests_stay_the_same() -> None:
    fresh = {name: ":".join(("v2:", *split(fingerprint(kind, body)))) for name, (kind, body, _) in PINNED.items()}
    assert fresh == {name: digest for name, (_, _, digest) in PINNED.items()}


def split(text: str) -> tuple[str, str]:
    """The raw and the canonical digest, without those of parts."""
    digests = text.removeprefix("v3::")
    return digests[:22], digests[22:44] if len(digests) >= 44 else ""


def drop_by_splitting(body: bytes, names: tuple[str, ...] = NOT_FINGERPRINTED) -> bytes:
    """The definition: the pairs whose decoded name is another."""
    unwanted = {name.encode() for name in names}
    pairs = body.split(b"&")
    found = [unquote_to_bytes(pair.partition(b"=")[0].replace(b"+", b" ")) for pair in pairs]
    return b"&".join(pair for pair, name in zip(pairs, found, strict=True) if name not in unwanted)


PIECES = st.sampled_from(
    [b"&", b"=", b"+", b"%", b"a", b"%41", b"csrfmiddlewaretoken", b"%63srfmiddlewaretoken", b"_idempotency_key"]
)


STRANGE = (" a+&=%", "%41", "é")
ANY_PIECE = st.sampled_from(
    [b"&", b"=", b"+", b"%", b"a", b"A", b" ", b"%20", b"%26", b"%3d", b"%2B", b"%25", b"4", b"1", b"%c3%A9"]
)


@given(st.lists(ANY_PIECE, max_size=14).map(b"".join))
@settings(deadline=None)
def test_a_name_of_any_characters_is_recognised(name: bytes) -> None:
    body = b"x=1&" + name + b"&y"
    assert drop_fields(body, STRANGE) == drop_by_splitting(body, STRANGE)


@given(st.lists(PIECES, max_size=20).map(b"".join))
@settings(deadline=None)
def test_fields_are_dropped_as_if_every_pair_were_parsed(body: bytes) -> None:
    assert drop_fields(body, NOT_FINGERPRINTED) == drop_by_splitting(body)


def nested_parts(depth: int) -> list[Part]:
    """What a project's own parser of multipart bodies makes of a[a][a]...=x."""
    data: Any = "x"
    for _ in range(depth):
        data = {"a": data}
    return request_parts(RequestFactory().post("/", {"a": "x"}), POLICY, {"k": data}).parts  # type: ignore[return-value]


def test_nested_fields_keep_their_names_and_their_order() -> None:
    data = {"b": [1, {"c": 2, "d": [3]}], "a": {}, "csrfmiddlewaretoken": "x", "e": (4,)}
    parts = request_parts(RequestFactory().post("/", {"a": "x"}), POLICY, data).parts or ()
    found = [(part.name, part.content) for part in parts]
    assert found == [("[b][0]", b"1"), ("[b][1][c]", b"2"), ("[b][1][d][0]", b"3"), ("[e][0]", b"4")]


def test_deeply_nested_fields_are_read_in_bounded_names() -> None:
    (deep,), (deeper,) = nested_parts(20_000), nested_parts(20_001)
    assert deep.content == deeper.content == b"x"
    assert deep.name != deeper.name
    assert len(deeper.name) < 5_000


def test_a_token_whose_name_is_encoded_throughout_is_dropped() -> None:
    name = "".join(f"%{ord(sign):02x}" for sign in "csrfmiddlewaretoken").encode()
    assert drop_fields(b"a=1&" + name + b"=x&b=2", NOT_FINGERPRINTED) == b"a=1&b=2"


def test_a_token_after_a_thousand_fields_is_compared() -> None:
    assert drop_fields(b"a&" * 999 + b"csrfmiddlewaretoken=x", NOT_FINGERPRINTED) == b"&".join([b"a"] * 999)
    late = b"a&" * 1000 + b"csrfmiddlewaretoken=x"
    assert drop_fields(late, NOT_FINGERPRINTED) == late


@pytest.mark.parametrize("key", ['"' + "a" * SIZE + '"', '"a";' + "a=1;" * SIZE + "b", "[" * SIZE, '"' + "\\" * SIZE])
def test_a_key_of_any_length_is_refused_before_it_is_parsed(key: str) -> None:
    with count_calls() as counted, pytest.raises(InvalidKey) as refused:
        call_from(RequestFactory().post("/payments/"), [key], POLICY, "user:1")
    assert refused.value.reason == "too_long"
    assert counted[0] < 1000
