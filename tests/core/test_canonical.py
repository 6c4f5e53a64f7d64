"""The canonical form of JSON is what RFC 8785 says, byte for byte, and None where two parsers may disagree."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from decimal import Decimal
from itertools import product
from types import FrameType
from typing import Any, NoReturn

import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_idempotency.core.canonical import canonicalize_json

UNTIMED = settings(deadline=None)  # a busy machine is no failure


def spell_slowly(body: bytes, paths: Collection[str] | None = None) -> bytes | None:
    """The form as its definition says it, value by value."""
    try:
        value = json.loads(
            body.decode(), object_pairs_hook=members, parse_float=exact_double, parse_constant=no_constant
        )
        return rfc8785.dumps(value if paths is None else chosen(value, paths))
    except (ValueError, ArithmeticError, RecursionError):
        return None


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("duplicate member")
    return dict(pairs)


def exact_double(text: str) -> float:
    if Decimal(text) != Decimal(repr(float(text))):
        raise ValueError("not exactly a double")
    return float(text)


def no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def chosen(value: Any, paths: Collection[str]) -> dict[str, Any]:
    found = {path: value[path] for path in paths if isinstance(value, dict) and path in value}
    if not found:
        raise ValueError("none of the paths")
    return found


NUMBERS = """
    0 -0 0.0 -0.0 0e5 -0E-7 1 -1 1.0 1e0 100 1E+2 10.5 10.50 -10.50 19.99 0.1 0.30000000000000004 0.5e1
    0.001 0.0001 0.00012 0.00010 1e-4 0.00001 1e-5 1.5e-5 0.000001 1e-6 1e-7 0.0000001 1.5e-7 1e-9 1e-10 1.25e-10
    5e-324 2.2250738585072014e-308 1.7976931348623157e308 1e300 1e+300
    999999999999999 9999999999999999 1e15 1e16 1e20 1e21 1e22 123456789012345680000 1.2345678901234568e20
    9007199254740991 -9007199254740991 9007199254740992 -9007199254740992 9007199254740993 90071992547409920
    9007199254740991.0 9007199254740992.0 9007199254740993.0 9007199254740994.0 9007199254740994 4503599627370496.5
    333333333.33333329 333333333.3333333 1E400 -1e400 1e-400 0e99999999999999999999 0.10000000000000000001
    0.000000000000000000000000000000 1.7976931348623159e308 NaN Infinity -Infinity 01 1. .5 +1 1e 0x1 1_000 \u0661
""".split()  # noqa: SIM905 - shorter than a list
TEXTS = ["", "a", "\x00\x1f\x7f\x80", '"\\/\b\f\n\r\t', "é", "\u2028\u2029", "\ue000", "\uffff", "\U0001f600", "\ud800"]
BODIES = [
    *(f"[{number}]" for number in NUMBERS),
    *(f'{{"a":{number},"b":1}}' for number in NUMBERS),
    *(f'{{"a":7,"unread":{number}}}' for number in NUMBERS),
    *(json.dumps({text: text, "z": [text]}) for text in TEXTS),
    *(json.dumps(dict.fromkeys((one, other), 1.5)) for one in TEXTS for other in TEXTS),
    '{"\ue000":1,"\U0001f600":2}',
    '{"a":1,"a":1}',
    '{"a":{"b":1,"\\u0062":2}}',
    '{"a":[],"c":{},"b":[{}],"unread":null}',
    "",
    " ",
    "null",
    "true",
    '"text"',
    '"\\ud83d"',
    "7",
    "0.00001",
    "[" * 400 + "]" * 400,
    "[" * 1100 + "]" * 1100,
    '{"a":' * 30000 + "1" + "}" * 30000,
    f"[{','.join(['[1.5]'] * 2000)}]",
    "9" * 5000,
    "[1,]",
    "{a:1}",
]


def test_the_form_of_the_corpus() -> None:
    wrong = []
    for body, paths in product(BODIES, (None, ("a",), ("b", "a"))):
        sent = body.encode("utf-8", "surrogatepass")
        if canonicalize_json(sent, paths) != spell_slowly(sent, paths):
            wrong.append(f"{body[:60]!a} with the paths {paths}")
    assert not wrong, "\n".join(wrong)


ANY_TEXT = st.text(st.sampled_from('ab\x1f\x7f"\\/é\ue000\uffff\U0001f600\ud83d\ude00'), max_size=4) | st.text(
    max_size=4
)
ANY_NUMBER = (
    st.sampled_from(NUMBERS)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.floats(1e-12, 1e-3).map(repr)
    | st.floats(2**52, 1e23).map(repr)
    | st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str)
)
NAMES = st.sampled_from(["a", "b"]) | ANY_TEXT


def spell_text(text: str, escaped: bool) -> str:
    return json.dumps(text, ensure_ascii=escaped)


def spell_object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in pairs) + "}"


SPELLED_TEXT = st.builds(spell_text, ANY_TEXT, st.booleans())
SPELLED_NAME = st.builds(spell_text, NAMES, st.booleans())
SPELLED = st.recursive(
    st.sampled_from(["null", "true", "false"]) | ANY_NUMBER | SPELLED_TEXT,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda values: f"[{', '.join(values)}]")
        | st.lists(st.tuples(SPELLED_NAME, inner), max_size=4).map(spell_object)
    ),
    max_leaves=12,
)


@settings(UNTIMED, max_examples=500)
@given(SPELLED, st.sampled_from([None, ("a",), ("a", "b")]))
@example('{"a": 1.5, "unread": 1e16}', ("a",))
@example('{"a": 1.5, "unread": 9007199254740993}', ("a",))
def test_the_form_of_any_body(body: str, paths: Collection[str] | None) -> None:
    sent = body.encode("utf-8", "surrogatepass")
    assert canonicalize_json(sent, paths) == spell_slowly(sent, paths)


def test_nesting_is_followed_as_deep_as_python_goes() -> None:
    """A parser in C may go deeper. The writer must not, because the stack of a thread has an end."""
    deep = 3000
    body = b'{"a":' * deep + b"1" + b"}" * deep
    assert sys.getrecursionlimit() < deep
    assert canonicalize_json(body) is None


LINES = 50
ORDER = json.dumps(
    [{"sku": f"S-{line}", "name": "Zoë's shirt", "note": None, "gift": True, "price": 19.99} for line in range(LINES)]
)


def test_python_runs_for_objects_and_numbers_alone() -> None:
    """A usual body is read and written in C: no function is called for each of its texts and names."""
    calls: list[str] = []

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    canonicalize_json(b"[]")
    sys.setprofile(on_event)
    try:
        canonicalize_json(ORDER.encode())
    finally:
        sys.setprofile(None)
    assert LINES <= len(calls) <= 2 * LINES + 20
