"""Which requests are one request, and which are not."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any, TypeAlias
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idempotency import FingerprintRule
from django_idempotency.core.comparison import is_fingerprint_of, is_same_fingerprint, list_differing_parts
from django_idempotency.core.fingerprint import URLENCODED, Part, RequestParts, seal
from django_idempotency.exceptions import UnreadableFingerprint

UNTIMED = settings(deadline=None)  # a busy machine is no failure
PLAIN = FingerprintRule()
OLD, NEW = b"an older key, 16+", b"a newer key, 16 +"
KEYED = FingerprintRule(secrets={"old": OLD, "new": NEW}, secret_id="new")


Case: TypeAlias = tuple[str, FingerprintRule, RequestParts, RequestParts]


def request(body: bytes = b"", content_type: str = "application/json", **changes: Any) -> RequestParts:
    return replace(RequestParts("POST", "/payments", "", content_type, body), **changes)


def form(body: bytes, **changes: Any) -> RequestParts:
    return request(body, URLENCODED, **changes)


def multipart(*parts: Part, boundary: str = "x") -> RequestParts:
    return request(f"--{boundary}".encode(), f"multipart/form-data; boundary={boundary}", parts=parts)


def are_one(one: RequestParts, other: RequestParts, rule: FingerprintRule = PLAIN) -> bool:
    """The answer of every way to ask, which must be one answer."""
    answers = {
        is_same_fingerprint(seal(one, rule), seal(other, rule)),
        is_same_fingerprint(seal(other, rule), seal(one, rule)),
        is_fingerprint_of(seal(one, rule), other, rule),
        is_fingerprint_of(seal(other, rule), one, rule),
    }
    assert len(answers) == 1, (one, other, rule)
    return answers.pop()


ONE = [
    ("the same bytes", request(b'{"a":1}'), request(b'{"a":1}')),
    ("white space", request(b'{"a":1}'), request(b' { "a" : 1 }\n')),
    ("member order", request(b'{"a":1,"b":[2]}'), request(b'{"b":[2],"a":1}')),
    ("nested member order", request(b'[{"a":{"c":1,"b":2}}]'), request(b'[{"a":{"b":2,"c":1}}]')),
    ("escapes", request(b'{"\\u0061":"\\/\\u00e9"}'), request('{"a":"/é"}'.encode())),
    ("an escaped surrogate pair", request(rb'"\ud83d\ude00"'), request('"\U0001f600"'.encode())),
    ("1, 1.0", request(b"[1]"), request(b"[1.0]")),
    ("1, 1e0", request(b"[1]"), request(b"[1e0]")),
    ("10.50, 10.5", request(b"[10.50]"), request(b"[10.5]")),
    ("100, 1E+2", request(b"[100]"), request(b"[1E+2]")),
    ("0, -0.0", request(b"[0]"), request(b"[-0.0]")),
    ("the largest safe integer", request(b"[9007199254740991]"), request(b"[9007199254740991 ]")),
    ("a double beyond safe integers", request(b"[1e300]"), request(b"[ 1e+300]")),
    ("media type parameter", request(b"{}"), request(b"{}", "application/json; charset=utf-8")),
    ("media type in capitals", request(b"{}"), request(b"{}", 'Application/JSON;CHARSET="UTF-8"')),
    ("other parameter", request(b"{}"), request(b"{}", "application/json;indent=2")),
    (
        "JSON by suffix",
        request(b'{"a":1,"b":2}', "application/merge-patch+json"),
        request(b'{"b":2,"a":1}', "application/merge-patch+json"),
    ),
    ("order of form fields", form(b"a=1&b=2"), form(b"b=2&a=1")),
    ("escapes in a form", form(b"a=x+y&b=%41"), form(b"a=x%20y&b=A")),
    ("empty pairs in a form", form(b"a=1&&"), form(b"a=1")),
    ("a form field without equals sign", form(b"a"), form(b"a=")),
    ("invalid JSON, same bytes", request(b"{"), request(b"{")),
    ("duplicate members, same bytes", request(b'{"a":1,"a":2}'), request(b'{"a":1,"a":2}')),
    ("identity coding", request(b"[1]"), request(b"[ 1]", headers={"content-encoding": "Identity"})),
    ("a header that does not count", request(headers={"x-trace": "1"}), request(headers={"x-trace": "2"})),
    ("boundary", multipart(Part("a", None, "", b"1")), multipart(Part("a", None, "", b"1"), boundary="y")),
    (
        "order of parts with different names",
        multipart(Part("a", None, "", b"1"), Part("b", None, "", b"2")),
        multipart(Part("b", None, "", b"2"), Part("a", None, "", b"1")),
    ),
    (
        "chunks of a part",
        multipart(Part("f", "f.bin", "image/png", [b"ab", b"", b"c"])),
        multipart(Part("f", "f.bin", "image/png", b"abc")),
    ),
    (
        "type of a part in capitals",
        multipart(Part("f", "f.bin", "image/png", b"abc")),
        multipart(Part("f", "f.bin", "Image/PNG; q=1", b"abc")),
    ),
]

TWO = [
    ("method", request(method="PUT"), request()),
    ("path", request(path="/payments/1"), request(path="/payments/2")),
    ("query", request(query="a=1"), request(query="a=2")),
    ("order in the query", request(query="a=1&b=2"), request(query="b=2&a=1")),
    ("a lone surrogate and its replacement", request(path="/\ud800"), request(path="/?")),
    ("path and query run together", request(path="/a", query="b"), request(path="/ab", query="")),
    ("media type", request(b"[1]"), request(b"[1]", "application/vnd.api+json")),
    ("JSON and text", request(b"[1]"), request(b"[1]", "text/plain")),
    ("white space in text", request(b"a", "text/plain"), request(b"a ", "text/plain")),
    ("charset", request(b"[1]"), request(b"[1]", "application/json; charset=utf-16")),
    (
        "white space under another charset",
        request(b"[1]", "application/json; charset=latin-1"),
        request(b"[ 1]", "application/json; charset=latin-1"),
    ),
    ("coding", request(b"[1]"), request(b"[1]", headers={"content-encoding": "gzip"})),
    (
        "white space under a coding",
        request(b"[1]", headers={"content-encoding": "br"}),
        request(b"[ 1]", headers={"content-encoding": "br"}),
    ),
    ("value", request(b'{"a":1}'), request(b'{"a":2}')),
    ("number and text", request(b'{"a":1}'), request(b'{"a":"1"}')),
    ("number and true", request(b'{"a":1}'), request(b'{"a":true}')),
    ("null and absent", request(b'{"a":null}'), request(b"{}")),
    ("order in an array", request(b"[1,2]"), request(b"[2,1]")),
    ("letter case", request(b'["a"]'), request(b'["A"]')),
    ("NFC and NFD", request('["caf\u00e9"]'.encode()), request('["cafe\u0301"]'.encode())),
    ("duplicate members", request(b'{"a":1,"a":2}'), request(b'{"a":2}')),
    ("duplicate members and white space", request(b'{"a":1,"a":2}'), request(b'{"a":1, "a":2}')),
    ("nested duplicates", request(b'[{"a":1,"a":1}]'), request(b'[{"a":1}]')),
    ("NaN", request(b"[NaN]"), request(b"[ NaN]")),
    ("Infinity", request(b"[Infinity]"), request(b"[-Infinity]")),
    ("integers that are one double", request(b"[9007199254740992]"), request(b"[9007199254740993]")),
    ("decimals that are one double", request(b"[0.1]"), request(b"[0.10000000000000000001]")),
    ("floats that are one double", request(b"[9007199254740993.0]"), request(b"[9007199254740992.0]")),
    ("an integer of 5,000 digits", request(b"9" * 5000), request(b" " + b"9" * 5000)),
    ("numbers beyond doubles", request(b"[1e400]"), request(b"[1e500]")),
    ("numbers below doubles", request(b"[1e-400]"), request(b"[0.0]")),
    ("an exponent beyond decimals", request(b"[0e99999999999999999999]"), request(b"[0.0]")),
    ("lone surrogates", request(rb'["\ud800"]'), request(rb'["\ud801"]')),
    ("a lone surrogate and white space", request(rb'["\ud800"]'), request(rb'[ "\ud800"]')),
    ("a lone surrogate as name", request(rb'{"\ud800":1,"a":1}'), request(rb'{"a":1,"\ud800":1}')),
    ("invalid JSON", request(b"{a:1}"), request(b"{a: 1}")),
    ("not UTF-8", request(b'["\xff"]'), request(b'[ "\xff"]')),
    ("UTF-16", request('["a"]'.encode("utf-16")), request('[ "a"]'.encode("utf-16"))),
    ("a byte order mark", request(b"\xef\xbb\xbf[1]"), request(b"[1]")),
    ("nothing and an empty object", request(b""), request(b"{}")),
    ("too deep to follow", request(b"[" * 30000 + b"]" * 30000), request(b"[" * 30000 + b"]" * 30000 + b" ")),
    ("form value", form(b"a=1"), form(b"a=2")),
    ("order of one form field", form(b"a=1&a=2"), form(b"a=2&a=1")),
    ("form and JSON", form(b"[1]"), request(b"[1]")),
    ("form pairs run together", form(b"a=1&b=2"), form(b"a=1%26b%3D2")),
    ("invalid bytes in a form", form(b"a=%ff"), form(b"a=%fe")),
    ("an empty form and separators", form(b""), form(b"&")),
    ("form in another charset", form(b"a=1&b=2"), request(b"b=2&a=1", f"{URLENCODED};charset=latin-1")),
    ("part name", multipart(Part("a", None, "", b"1")), multipart(Part("b", None, "", b"1"))),
    ("part content", multipart(Part("a", None, "", b"1")), multipart(Part("a", None, "", b"2"))),
    ("part type", multipart(Part("a", "f", "image/png", b"1")), multipart(Part("a", "f", "image/gif", b"1"))),
    ("file name", multipart(Part("a", "f", "", b"1")), multipart(Part("a", "g", "", b"1"))),
    ("empty file name and none", multipart(Part("a", "", "", b"1")), multipart(Part("a", None, "", b"1"))),
    (
        "order of parts with one name",
        multipart(Part("a", None, "", b"1"), Part("a", None, "", b"2")),
        multipart(Part("a", None, "", b"2"), Part("a", None, "", b"1")),
    ),
    (
        "parts run together",
        multipart(Part("a", None, "", b"1"), Part("b", None, "", b"2")),
        multipart(Part("a", None, "", b"1b2")),
    ),
    ("no parts and no multipart", multipart(), request(b"--x", "multipart/form-data")),
]


TRACE = FingerprintRule(headers=("X-Tenant",))
AMOUNT = FingerprintRule(fields=("amount", "card.number"))
SENT_AT = FingerprintRule(ignored=("sent_at", "meta.signature"))
NONE = FingerprintRule(body=False)
LENGTH = FingerprintRule(custom=lambda parts: str(len(parts.body)))
ORIGIN = FingerprintRule(custom=lambda parts: parts.body[:1])

CHOSEN_ONE = [
    ("a header that counts", TRACE, request(headers={"x-tenant": "1"}), request(headers={"x-tenant": "1"})),
    ("a field that does not count", AMOUNT, request(b'{"amount":1,"t":1}'), request(b'{"t":2,"amount":1.0}')),
    (
        "a nested field",
        AMOUNT,
        request(b'{"amount":1,"card":{"number":"4","name":"a"}}'),
        request(b'{"card":{"number":"4"},"amount":1}'),
    ),
    ("a form field that does not count", AMOUNT, form(b"amount=1&t=1"), form(b"t=2&amount=1")),
    ("a form field with a dot", AMOUNT, form(b"card.number=4&t=1"), form(b"card.number=4")),
    (
        "a part that does not count",
        AMOUNT,
        multipart(Part("amount", None, "", b"1"), Part("t", None, "", b"1")),
        multipart(Part("amount", None, "", b"1"), Part("t", None, "", b"2")),
    ),
    ("no field, same bytes", AMOUNT, request(b'{"t":1}'), request(b'{"t":1}')),
    ("the body does not count", NONE, request(b"1"), request(b"2", "text/plain")),
    ("parts do not count", NONE, multipart(Part("a", None, "", b"1")), request()),
    ("a callable's text", LENGTH, request(b"ab", query="a"), request(b"cd", "text/plain")),
    ("a callable's bytes", ORIGIN, request(b"ab"), request(b"ac")),
    ("at the canonical limit", FingerprintRule(canonical_limit=4), request(b"[1 ]"), request(b"[ 1]")),
]

CHOSEN_TWO = [
    ("a header that counts", TRACE, request(headers={"x-tenant": "1"}), request(headers={"x-tenant": "2"})),
    ("an empty header and none", TRACE, request(headers={"x-tenant": ""}), request()),
    ("a field that counts", AMOUNT, request(b'{"amount":1,"t":1}'), request(b'{"amount":2,"t":1}')),
    ("an absent field", AMOUNT, request(b'{"amount":1}'), request(b'{"amount":1,"card":{"number":null}}')),
    ("none of the fields", AMOUNT, request(b'{"t":1}'), request(b'{"t":2}')),
    ("no object", AMOUNT, request(b"[1]"), request(b"[2]")),
    ("a path through text", AMOUNT, request(b'{"card":"number"}'), request(b'{"card":"numbers"}')),
    ("none of the form fields", AMOUNT, form(b"t=1"), form(b"t=2")),
    ("none of the parts", AMOUNT, multipart(Part("t", None, "", b"1")), multipart(Part("t", None, "", b"2"))),
    ("no body, another query", NONE, request(query="a"), request(query="b")),
    ("no body, another path", NONE, request(path="/a"), request(path="/b")),
    ("a callable, another path", LENGTH, request(path="/a"), request(path="/b")),
    ("a callable, another method", LENGTH, request(method="PUT"), request()),
    ("a callable's text", LENGTH, request(b"1"), request(b"12")),
    ("over the canonical limit", FingerprintRule(canonical_limit=4), request(b"[1  ]"), request(b"[ 1 ]")),
    ("a form over the limit", FingerprintRule(canonical_limit=6), form(b"a=1&b=2"), form(b"b=2&a=1")),
]


IGNORED_ONE = [
    ("an ignored member", SENT_AT, request(b'{"amount":1,"sent_at":1}'), request(b'{"sent_at":2,"amount":1}')),
    ("an ignored member and none", SENT_AT, request(b'{"amount":1,"sent_at":1}'), request(b'{"amount":1}')),
    (
        "an ignored member of a member",
        SENT_AT,
        request(b'{"meta":{"signature":"a","by":"b"}}'),
        request(b'{"meta":{"signature":"c","by":"b"}}'),
    ),
    ("an ignored form field", SENT_AT, form(b"amount=1&sent_at=1"), form(b"sent_at=2&amount=1")),
    (
        "an ignored part",
        SENT_AT,
        multipart(Part("amount", None, "", b"1"), Part("sent_at", None, "", b"1")),
        multipart(Part("amount", None, "", b"1"), Part("sent_at", None, "", b"2")),
    ),
]

IGNORED_TWO = [
    ("another field than the ignored", SENT_AT, request(b'{"amount":1}'), request(b'{"amount":2}')),
    ("a member of the same name deeper", SENT_AT, request(b'{"a":{"sent_at":1}}'), request(b'{"a":{"sent_at":2}}')),
    ("a path through a text", SENT_AT, request(b'{"meta":"signature"}'), request(b'{"meta":"signatures"}')),
    ("an ignored member of a list's", SENT_AT, request(b'[{"sent_at":1}]'), request(b'[{"sent_at":2}]')),
    ("another part", SENT_AT, multipart(Part("a", None, "", b"1")), multipart(Part("a", None, "", b"2"))),
]


def by_every_rule(rows: list[tuple[str, RequestParts, RequestParts]]) -> Iterator[Case]:
    """A secret changes nothing about which requests are one."""
    for how, rule in (("plain", PLAIN), ("keyed", KEYED)):
        yield from ((f"{name}, {how}", rule, one, other) for name, one, other in rows)


def test_one_request() -> None:
    cases = [*by_every_rule(ONE), *CHOSEN_ONE, *IGNORED_ONE]
    assert [name for name, rule, one, other in cases if not are_one(one, other, rule)] == []


def test_two_requests() -> None:
    cases = [*by_every_rule(TWO), *CHOSEN_TWO, *IGNORED_TWO]
    assert [name for name, rule, one, other in cases if are_one(one, other, rule)] == []


def test_the_default_limit_of_the_canonical_form() -> None:
    for count in (65536, 65537):
        body = b'["' + b"a" * (count - 5) + b'"'
        assert are_one(request(body + b" ]"), request(body + b"] ")) is (count == 65536), count


def test_the_canonical_form_needs_the_rule_that_made_it() -> None:
    stored = seal(request(b'{"amount":1}'), PLAIN)
    assert is_fingerprint_of(stored, request(b'{"amount":1}'), AMOUNT)
    assert not is_fingerprint_of(stored, request(b'{"amount": 1}'), AMOUNT)


def test_the_stored_text() -> None:
    """The raw and the canonical digest, then one of the query, one of the type, and one of headers if any count."""
    assert [len(each) for each in seal(request(b"{}"), KEYED).split(":")] == [2, 3, 22 + 22 + 2 + 2]
    assert [len(each) for each in seal(request(b"{"), PLAIN).split(":")] == [2, 0, 22 + 2 + 2]
    assert [len(each) for each in seal(request(b"{"), TENANT).split(":")] == [2, 2, 22 + 2 + 2 + 2]
    assert [len(each) for each in seal(request(b"{"), LENGTH).split(":")] == [2, 0, 22]


def test_the_longest_text_fits_its_column() -> None:
    rule = FingerprintRule(headers=("x-tenant",), secrets={"k" * 16: NEW}, secret_id="k" * 16)
    assert len(seal(request(b"{}"), rule)) <= 70


ORDER = RequestParts(
    "POST", "/payments", "page=1", "application/json; charset=utf-8", b'{"b": 1.0, "a": "x"}', {"x-tenant": "t"}
)
TENANT = FingerprintRule(headers=("x-tenant",), fields=("a",), secrets={"k1": b"0123456789abcdef"}, secret_id="k1")
VERSION_1 = [
    (PLAIN, "v1::lYsPYG3qOHt6nIoVlV8Ge5BnOch8Fr4bp4s3xmmpnBw:dTJNg4zAqL3OSpacSmgkomf35_unsr6MYndaFXz0wgc"),
    (TENANT, "v1:k1:iJLZz4W5cB0FVbpIOBh4cEFDTClk7CCbEDZRltMrBjI:fRP7w89HGTKyzTCcPPanekyWay4NLAzDN2WND-6OT9Q"),
]

VERSION_2 = [
    (PLAIN, "v2::lYsPYG3qOHt6nIoVlV8Ge5:dTJNg4zAqL3OSpacSmgkom"),
    (TENANT, "v2:k1:iJLZz4W5cB0FVbpIOBh4cE:fRP7w89HGTKyzTCcPPanek"),
]


@pytest.mark.parametrize(("rule", "stored"), [*VERSION_1, *VERSION_2])
def test_older_versions_can_be_read(rule: FingerprintRule, stored: str) -> None:
    reordered = replace(ORDER, body=b'{"a": "x", "b": 1.0}')
    for same in (ORDER, reordered):
        assert is_same_fingerprint(stored, seal(same, rule))
        assert is_same_fingerprint(seal(same, rule), stored)
        assert is_fingerprint_of(stored, same, rule)
    other = replace(ORDER, body=b'{"a": "y"}')
    assert not is_same_fingerprint(stored, seal(other, rule))
    assert not is_fingerprint_of(stored, other, rule)
    assert list_differing_parts(stored, seal(other, rule), rule, other) is None


PARTS = multipart(
    Part("amount", None, "", b"1"), Part("sent_at", None, "", b"2"), Part("f", "f.bin", "image/png", b"3")
)
SENT = request(b'{"sent_at": 1, "meta": {"signature": "x", "by": 1.0}, "amount": 1}')
GOLDEN = [
    ("JSON", PLAIN, ORDER, "v3::lYsPYG3qOHt6nIoVlV8Ge5dTJNg4zAqL3OSpacSmgkomr1Ab"),
    ("no body", PLAIN, request(), "v3::MhCcAOgLr21chudTHr3rzHEtAb"),
    ("text", PLAIN, request(b"1", "text/plain"), "v3::3R-LkO1CygMHa3aR9GV2_sEtVx"),
    ("a form", PLAIN, form(b"b=1&a=+"), "v3::f_m9EY2OWLciA0NCRnReLJ9708XRkoZEwBNvi-kgrXa8Etu3"),
    ("a multipart body", PLAIN, PARTS, "v3::dE6HRLAhHz0Mx_IN-RtrIUflAlZ4ui5oBNnmpDuZJmWcEt6N"),
    ("another charset", PLAIN, request(b"[1]", "application/json; charset=latin-1"), "v3::pKJP5jkGyRfWTK_Go80Yd5EtlO"),
    ("a coding", PLAIN, request(b"[1]", headers={"content-encoding": "gzip"}), "v3::dTgpEdoP_jktNlJkd_0JQ2Et0I"),
    ("over the limit", FingerprintRule(canonical_limit=4), request(b"[1, 2]"), "v3::J22q-sxkRJkb1zUM3B7MfdEtAb"),
    ("a header", TRACE, ORDER, "v3::ZGUL4hEZ8kj-b6KLvR5PVX59wkCWRcR7MiX2tAbFMMJkr1AbCK"),
    ("an absent header", TRACE, request(), "v3::6il8o2r-HG0aWf4DL-IuJCEtAbBt"),
    ("fields of JSON", AMOUNT, SENT, "v3::rLbRo_1vtfNY-k4xwTBkiCb5YOsx0wvlopBMC_kaG8g2EtAb"),
    ("fields of a form", AMOUNT, form(b"t=1&amount=2"), "v3::x1f4Drh_4Q7nHp_n7EbsJlsTgEY0UwyT8QX9B7n4Mdu7Etu3"),
    ("fields of a multipart body", AMOUNT, PARTS, "v3::dE6HRLAhHz0Mx_IN-RtrIUlXYO3yVByIQq2NXWNHQ8E9Et6N"),
    ("ignored in JSON", SENT_AT, SENT, "v3::rLbRo_1vtfNY-k4xwTBkiCXb16OklPJVHGNOzjSHBg-REtAb"),
    ("ignored in a form", SENT_AT, form(b"sent_at=1&amount=2"), "v3::tUcncMTg56pHHdH3Lm_xf_xGzAbcWG4AGvILAgMIZzzNEtu3"),
    ("ignored in a multipart body", SENT_AT, PARTS, "v3::dE6HRLAhHz0Mx_IN-RtrIUYUB0kj_bPTl31L0C1DHPGIEt6N"),
    (
        "ignored in the other order",
        FingerprintRule(ignored=SENT_AT.ignored[::-1]),
        SENT,
        "v3::rLbRo_1vtfNY-k4xwTBkiCaMDsVNWXhAvrAVK4N-cQgrEtAb",
    ),
    ("without the body", NONE, ORDER, "v3::PNzyfMGWECBJbUolr4HO3Yr147"),
    ("a callable's text", LENGTH, ORDER, "v3::kYbdC2-E3CbG1xLeHvAeGi"),
    ("a callable's bytes", ORIGIN, ORDER, "v3::fWBxyGZq_miYEtFktLunkm"),
    ("a secret", TENANT, ORDER, "v3:k1:iJLZz4W5cB0FVbpIOBh4cEfRP7w89HGTKyzTCcPPanekEVUHA8"),
    ("a secret and a callable", replace(KEYED, custom=ORIGIN.custom), ORDER, "v3:new:hLkjt47DktgQBLV8mkUv-8"),
    (
        "a secret and ignored fields",
        replace(KEYED, ignored=("sent_at",)),
        SENT,
        "v3:new:XDn9sOST3gwnrfjHpSMw7ILvCs6dBaF3DDiMUVs3_pt7jrqy",
    ),
]


def test_what_one_release_stored_the_next_can_read() -> None:
    """Else the next deployment refuses the retry of every stored key. A change of the format is a new version of it."""
    changed = {name: fresh for name, rule, sent, stored in GOLDEN if (fresh := seal(sent, rule)) != stored}
    assert changed == {}


def test_each_argument_of_a_rule_has_a_text_that_must_not_change() -> None:
    pinned = {each.name for each in fields(PLAIN) for _, rule, _, _ in GOLDEN if differs(rule, each.name)}
    assert pinned == {each.name for each in fields(PLAIN)}


def differs(rule: FingerprintRule, argument: str) -> bool:
    return bool(getattr(rule, argument) != getattr(PLAIN, argument))


def test_a_canonical_digest_is_compared_with_no_absent_one() -> None:
    stored = seal(request(b"{}"), PLAIN)
    raw_alone = seal(request(b"{ }"), FingerprintRule(canonical_limit=0))
    assert not is_same_fingerprint(stored, raw_alone)
    assert not is_same_fingerprint(raw_alone, stored)


RULES = [PLAIN, KEYED, TRACE, AMOUNT, SENT_AT, NONE, LENGTH, ORIGIN, TENANT, FingerprintRule(canonical_limit=4)]
EVERY_REQUEST = [
    *(each for _, one, other in (*ONE, *TWO) for each in (one, other)),
    *(each for _, _, one, other in (*CHOSEN_ONE, *CHOSEN_TWO, *IGNORED_ONE, *IGNORED_TWO) for each in (one, other)),
    ORDER,
]


def test_no_fingerprint_of_any_request_here_changes() -> None:
    """A release that computes another digest for one of these would treat retries as other requests."""
    texts = [seal(parts, rule) for rule in RULES for parts in EVERY_REQUEST]
    assert digest_of(texts) == "5b0d88f6d4cc989491c3cc11cc51bc03e907fc73968b04b7079eebe7569ebbf8"
    assert digest_of(map(as_version_2, texts)) == "7b66fdb02f6de47cfb9b6ee38bda737012279a328e8dc30e8289915de518a92f"


def digest_of(texts: Iterable[str]) -> str:
    return sha256("\n".join(texts).encode()).hexdigest()


def as_version_2(text: str) -> str:
    """The same digests as they were stored before there were any of parts."""
    _version, secret_id, digests = text.split(":")
    return f"v2:{secret_id}:{digests[:22]}:{digests[22:44] if len(digests) >= 44 else ''}"


class TestRotation:
    before = FingerprintRule(secrets={"old": OLD}, secret_id="old")
    after = FingerprintRule(secrets={"old": OLD, "new": NEW}, secret_id="new")

    def test_older_texts_are_compared_with_their_own_key(self) -> None:
        stored = seal(request(b'{"a":1}'), self.before)
        assert is_fingerprint_of(stored, request(b'{"a":1}'), self.after)
        assert is_fingerprint_of(stored, request(b'{"a": 1}'), self.after)
        assert not is_fingerprint_of(stored, request(b'{"a":2}'), self.after)

    def test_texts_of_two_keys_are_not_compared(self) -> None:
        stored = seal(request(b"{}"), self.before)
        assert not is_same_fingerprint(stored, seal(request(b"{}"), self.after))
        assert not is_same_fingerprint(stored, stored.replace("v3:old:", "v3:new:"))

    def test_keys_may_be_introduced_and_given_up(self) -> None:
        assert is_fingerprint_of(seal(request(b"{}"), PLAIN), request(b"{}"), self.after)
        assert is_fingerprint_of(seal(request(b"{}"), self.after), request(b"{}"), replace(self.after, secret_id=None))

    def test_a_lost_key_is_said_not_guessed(self) -> None:
        with pytest.raises(UnreadableFingerprint, match="'old'"):
            is_fingerprint_of(seal(request(b"{}"), self.before), request(b"{}"), PLAIN)

    def test_the_key_decides_the_digest(self) -> None:
        other = FingerprintRule(secrets={"new": OLD}, secret_id="new")
        assert not is_same_fingerprint(seal(request(b"{}"), KEYED), seal(request(b"{}"), other))

    def test_no_secret_is_shown(self) -> None:
        assert "newer" not in repr(KEYED)

    def test_a_rule_with_secrets_can_be_hashed(self) -> None:
        assert hash(KEYED) == hash(replace(KEYED))


UNREADABLE = [
    "",
    "v2",
    "v2::",
    "v3::",
    "v4:" + seal(request(), PLAIN)[3:],
    seal(request(), PLAIN) + "x",
    "é:\ud800",
    "v2:::",
]


@pytest.mark.parametrize("stored", UNREADABLE)
def test_an_unreadable_text_is_said_not_guessed(stored: str) -> None:
    assert not is_same_fingerprint(stored, stored)
    with pytest.raises(UnreadableFingerprint):
        is_fingerprint_of(stored, request(), PLAIN)


class Upload:
    """Content that is never whole in memory and can be read again."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return (b"0123456789abcdef" for _ in range(self.chunks))


def test_contents_are_streamed_and_read_again() -> None:
    one, other = (multipart(Part("f", "f", "", Upload(chunks))) for chunks in (1000, 1001))
    assert are_one(one, one)
    assert not are_one(one, other)


def test_an_iterator_is_no_content() -> None:
    with pytest.raises(ValueError, match=r"^content must be"):
        Part("f", "f", "", iter([b"a"]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"headers": "x-tenant"}, "headers must be"),
        ({"headers": ("x tenant",)}, "headers holds 'x tenant'"),
        ({"fields": "amount"}, "fields must be"),
        ({"fields": ()}, "fields must be"),
        ({"fields": ("",)}, "fields must be"),
        ({"canonical_limit": -1}, "canonical_limit must be"),
        ({"secrets": {"": NEW}}, "secrets: an id"),
        ({"secrets": {"a:b": NEW}}, "secrets: an id"),
        ({"secrets": {"k" * 17: NEW}}, "secrets: an id"),
        ({"secrets": {"k": b"short"}}, r"secrets\['k'\] must be"),
        ({"secrets": {"k": "text, not bytes, is no key"}}, r"secrets\['k'\] must be"),
        ({"secret_id": "k"}, "secret_id must be"),
        ({"fields": ("a",), "body": False}, "fields has no effect"),
        ({"custom": "path"}, "custom must be"),
        ({"ignored": "sent_at"}, "ignored must be"),
        ({"ignored": ("",)}, "ignored must be"),
        ({"ignored": ("a",), "body": False}, "ignored has no effect"),
        ({"ignored": ("a",), "fields": ("b",)}, "fields names the only fields"),
        ({"custom": len, "ignored": ("a",)}, "custom replaces"),
        ({"custom": len, "headers": ("a",)}, "custom replaces"),
        ({"custom": len, "fields": ("a",)}, "custom replaces"),
        ({"custom": len, "body": False}, "custom replaces"),
    ],
)
def test_a_wrong_rule_names_its_argument(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        FingerprintRule(**arguments)


NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(each) for each in value] if isinstance(value, list) else value


def meaning(value: Any) -> Any:
    """What tells JSON values apart in Python, where True == 1 and objects are unordered."""
    if isinstance(value, dict):
        return {name: meaning(each) for name, each in value.items()}
    return [meaning(each) for each in value] if isinstance(value, list) else (isinstance(value, bool), value)


@UNTIMED
@given(VALUES)
def test_member_order_and_white_space_do_not_matter(value: Any) -> None:
    assert are_one(
        request(json.dumps(value).encode()),
        request(json.dumps(reordered(value), indent=3, ensure_ascii=False).encode()),
    )


@UNTIMED
@given(VALUES, VALUES)
def test_json_is_one_request_exactly_when_it_means_the_same(one: Any, other: Any) -> None:
    sent = [request(json.dumps(each).encode()) for each in (one, other)]
    assert are_one(sent[0], sent[1]) is (meaning(one) == meaning(other))


SHORT = st.text("ab", max_size=2)
FILES = st.builds(Part, SHORT, SHORT | st.none(), st.just(""), st.binary(max_size=2))
ANY_REQUEST = st.builds(
    RequestParts,
    method=st.sampled_from(["POST", "PUT"]),
    path=SHORT,
    query=SHORT,
    content_type=st.sampled_from(["text/plain", "application/octet-stream"]),
    body=st.binary(max_size=2),
    headers=st.dictionaries(st.sampled_from(["a", "b"]), SHORT),
)


@UNTIMED
@given(ANY_REQUEST, ANY_REQUEST)
def test_distinct_requests_never_collide(one: RequestParts, other: RequestParts) -> None:
    assert are_one(one, other, FingerprintRule(headers=("a", "b"))) is (one == other)


@UNTIMED
@given(st.lists(FILES, max_size=3), st.lists(FILES, max_size=3))
def test_multipart_bodies_never_collide(one: list[Part], other: list[Part]) -> None:
    in_order = [sorted(parts, key=lambda part: part.name) for parts in (one, other)]
    assert are_one(multipart(*one), multipart(*other, boundary="y")) is (in_order[0] == in_order[1])


PAIRS = st.lists(st.tuples(st.text("a&=+%é", max_size=2), st.text("a&=+%é", max_size=2)), max_size=3)


@UNTIMED
@given(PAIRS, PAIRS)
def test_forms_never_collide(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    in_order = [sorted(pairs, key=lambda pair: pair[0].encode()) for pairs in (one, other)]
    sent = [form(urlencode(pairs).encode()) for pairs in (one, other)]
    assert are_one(sent[0], sent[1]) is (in_order[0] == in_order[1])


TYPES = st.sampled_from(["application/json", URLENCODED, "multipart/form-data", "a/b+json"]) | st.text(max_size=20)


@UNTIMED
@given(st.binary(), TYPES, st.text(), st.text(), st.sampled_from([PLAIN, KEYED, AMOUNT, NONE]))
def test_any_bytes_have_a_fingerprint(body: bytes, kind: str, path: str, query: str, rule: FingerprintRule) -> None:
    sent = RequestParts("POST", path, query, kind, body)
    assert is_fingerprint_of(seal(sent, rule), sent, rule)
    assert is_same_fingerprint(seal(sent, rule), seal(sent, rule))


@UNTIMED
@given(st.text("\ud800\udfff;=/+charset\xff", max_size=20))
def test_lone_surrogates_have_a_fingerprint(text: str) -> None:
    sent = RequestParts(text, text, text, f"application/json{text}", b"[ 1]", {"content-encoding": text})
    assert are_one(sent, sent)
