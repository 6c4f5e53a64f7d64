"""Every way to write a key, and every way to write none."""

import uuid
from hashlib import sha256
from timeit import timeit
from typing import Any

import http_sf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_idempotency import KeyRule, all_of, entropy, no_personal_data, unguessable
from django_idempotency.core.keys import REASONS, parse_key
from django_idempotency.exceptions import InvalidKey
from tests.kit.corpus import all_as_said

UNTIMED = settings(deadline=None)  # a busy machine is no failure
LENIENT, STRICT = KeyRule(), KeyRule(strict=True)
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
UUID = "0b1c9d9e-4c6f-4a53-9b58-0f5ad5a0c0de"

ACCEPTED = [
    ("one character", "k", "k"),
    ("255 characters", "k" * 255, "k" * 255),
    ("quoted", '"k"', "k"),
    ("255 quoted characters", f'"{"k" * 255}"', "k" * 255),
    ("upper case stays", "KeY", "KeY"),
    ("parameter ignored", '"k";p=1', "k"),
    ("parameters of every type ignored", '"k";a; b="x";c=:YQ==:;d=@1;e=%"x";f=tok;g=1.5', "k"),
    ("escaped quote", r'"a\"b"', 'a"b'),
    ("escaped backslash", r'"a\\b"', r"a\b"),
    ("quoted space", '"a b"', "a b"),
    ("quoted comma", '"a,b"', "a,b"),
    ("quoted semicolon", '"a;b"', "a;b"),
    ("outer spaces of the field", "  k ", "k"),
    ("inner spaces of the string", '" k "', " k "),
    ("UUID", UUID, UUID),
    ("quoted UUID", f'"{UUID}"', UUID),
    ("UUID in braces", f"{{{UUID}}}", f"{{{UUID}}}"),
    ("ULID", ULID, ULID),
    ("base64", "aGVsbG8gd29ybGQ+/w==", "aGVsbG8gd29ybGQ+/w=="),
    ("looks like an integer", "123", "123"),
    ("looks like a decimal", "1.50", "1.50"),
    ("looks like a boolean", "?1", "?1"),
    ("looks like a byte sequence", ":YWJj:", ":YWJj:"),
    ("looks like a date", "@123", "@123"),
    ("bare backslash", r"a\b", r"a\b"),
    ("single quotes", "'k'", "'k'"),
    ("every bare mark", "!#$%&'()*+-./:<=>?@[\\]^_`{|}~", "!#$%&'()*+-./:<=>?@[\\]^_`{|}~"),
]

REFUSED = [
    ("no line", [], "empty"),
    ("empty", [""], "empty"),
    ("empty string", ['""'], "empty"),
    ("spaces", ["   "], "empty"),
    ("quoted spaces", ['"  "'], "empty"),
    ("a tab alone", ["\t"], "control_character"),
    ("inner space", ["a b"], "space"),
    ("tab", ["a\tb"], "control_character"),
    ("CR", ["a\rb"], "control_character"),
    ("LF", ["a\nb"], "control_character"),
    ("trailing LF", ["k\n"], "control_character"),
    ("CR LF and another header", ["k\r\nSet-Cookie: a=b"], "control_character"),
    ("NUL", ["a\0b"], "control_character"),
    ("DEL", ["a\x7fb"], "control_character"),
    ("escape", ["a\x1bb"], "control_character"),
    ("quoted control character", ['"a\x01b"'], "control_character"),
    ("C1 control character", ["a\x85b"], "not_ascii"),
    ("latin-1", ["caf\xe9"], "not_ascii"),
    ("quoted latin-1", ['"caf\xe9"'], "not_ascii"),
    ("UTF-8 read as latin-1", ["café".encode().decode("latin-1")], "not_ascii"),
    ("NFC", ["caf\u00e9"], "not_ascii"),
    ("NFD", ["cafe\u0301"], "not_ascii"),
    ("no-break space", ["\xa0"], "not_ascii"),
    ("lone surrogate", ["a\ud800"], "not_ascii"),
    ("256 characters", ["k" * 256], "too_long"),
    ("256 quoted characters", [f'"{"k" * 256}"'], "too_long"),
    ("8,000 characters", ["k" * 8000], "too_long"),
    ("two lines", ["a", "b"], "several_values"),
    ("two lines, one key", ["a", "a"], "several_values"),
    ("two empty lines", ["", ""], "several_values"),
    ("a list", ['"a", "b"'], "several_values"),
    ("a list without space", ['"a","b"'], "several_values"),
    ("a string and a token", ['"a",b'], "several_values"),
    ("bare list", ["a,b"], "several_values"),
    ("a token and a string", ['a,"b"'], "several_values"),
    ("a key and an empty line, joined", ["a,"], "several_values"),
    ("a bare parameter", ["a;p=1"], "semicolon"),
    ("unclosed quote", ['"a'], "malformed_string"),
    ("a quote alone", ['"'], "malformed_string"),
    ("inner quote", ['"a"b"'], "malformed_string"),
    ("quote inside a bare key", ['a"b'], "malformed_string"),
    ("space before a parameter", ['"a" ;p'], "malformed_string"),
    ("text after the string", ['"a" b'], "malformed_string"),
    ("bad escape", [r'"a\b"'], "malformed_string"),
    ("escaped end", ['"a\\"'], "malformed_string"),
    ("malformed parameter", ['"a";P=1'], "malformed_string"),
    ("display string", ['%"a"'], "malformed_string"),
]

REFUSED_WHERE_STRICT = [
    ("bare", "k", "unquoted"),
    ("bare with parameter", "k;p=1", "unquoted"),
    ("bare UUID", UUID, "unquoted"),
    ("inner space", "a b", "unquoted"),
    ("integer", "123", "not_a_string"),
    ("decimal", "1.5", "not_a_string"),
    ("boolean", "?1", "not_a_string"),
    ("byte sequence", ":YWJj:", "not_a_string"),
    ("date", "@123", "not_a_string"),
    ("display string", '%"a"', "not_a_string"),
    ("inner list", '("a" "b")', "not_a_string"),
    ("bare list", "a, b", "several_values"),
    ("quoted list", '"a", "b"', "several_values"),
    ("empty string", '""', "empty"),
    ("unclosed quote", '"a', "malformed_string"),
]


def parsed(lines: list[str], rule: KeyRule = LENIENT) -> tuple[str, str]:
    """The key, and why there is none."""
    try:
        return parse_key(lines, rule), ""
    except InvalidKey as refusal:
        return "", refusal.reason if str(refusal).endswith(".") else f"{refusal} ends without a full stop"


def test_accepted_byte_for_byte() -> None:
    assert all_as_said((name, parsed([text]), (key, "")) for name, text, key in ACCEPTED)


def test_refused_with_its_reason() -> None:
    assert all_as_said((name, parsed(lines), ("", reason)) for name, lines, reason in REFUSED)


def test_only_strings_are_keys_where_strict() -> None:
    assert all_as_said((name, parsed([text], STRICT), ("", reason)) for name, text, reason in REFUSED_WHERE_STRICT)
    quoted = [row for row in ACCEPTED if row[1].startswith('"')]
    assert all_as_said((name, parsed([text], STRICT), (key, "")) for name, text, key in quoted)


def test_letter_case_makes_another_key() -> None:
    assert parse_key(["Key"]) != parse_key(["key"])


def test_length_limits_of_a_rule() -> None:
    rule = KeyRule(min_length=16, max_length=32)
    for quote in ("", '"'):
        found = [parsed([quote + "k" * length + quote], rule) for length in (15, 16, 32, 33)]
        assert found == [("", "too_short"), ("k" * 16, ""), ("k" * 32, ""), ("", "too_long")]


def test_length_counts_characters_of_the_key_not_of_its_spelling() -> None:
    spelled = '"' + '\\"' * 255 + '";p=1'
    assert parse_key([spelled]) == '"' * 255


def test_a_validator_sees_the_key_and_gives_the_sentence() -> None:
    rule = KeyRule(validator=lambda key: "No x, please." if "x" in key else None)
    assert parse_key(['"abc"'], rule) == "abc"
    with pytest.raises(InvalidKey) as refusal:
        parse_key(['"axc"'], rule)
    assert (str(refusal.value), refusal.value.reason) == ("No x, please.", "rejected")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"min_length": 0}, "min_length"),
        ({"min_length": 20, "max_length": 10}, "min_length"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": 256}, "max_length"),
        ({"validator": "unguessable"}, "validator"),
    ],
)
def test_a_wrong_rule_names_its_argument(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} must be"):
        KeyRule(**arguments)


ENOUGH_ENTROPY = [
    ("random UUID", UUID, True),
    ("random UUID in capitals", UUID.upper(), True),
    ("32 hexadecimal digits", "9f86d081884c7d659a2feaa0c55ad015", True),
    ("31 hexadecimal digits", "9f86d081884c7d659a2feaa0c55ad01", False),
    ("16 bytes as base64", "n4bQgYhMfWWaL+qgxVrQFQ==", True),
    ("16 bytes as base64url", "n4bQgYhMfWWaL-qgxVrQFQ", True),
    ("12 bytes as base64", "n4bQgYhMfWWaL+qg", False),
    ("14 bytes as base64", "n4bQgYhMfWWaL+qgxVo=", False),
    ("30 digits in groups", "9f86d081-884c-7d65-9a2f-eaa0c55ad0", False),
    ("ULID", ULID, True),
    ("39 decimal digits", "271828182845904523536028747135266249775"[:39], True),
    ("38 decimal digits", "27182818284590452353602874713526624977", False),
    ("20 printable characters", "kY7~#pQ.2v!Lw)9s{T^d", True),
    ("19 printable characters", "kY7~#pQ.2v!Lw)9s{T^", False),
    ("one character repeated", "a" * 255, False),
    ("a word repeated", "order-" * 20, False),
    ("half a UUID twice", "9f86d081884c7d65" * 2, False),
    ("padding only", "====", False),
    ("a counter", "order-42", False),
]


def test_entropy_of_128_bits() -> None:
    assert all_as_said((name, entropy()(key) is None, enough) for name, key, enough in ENOUGH_ENTROPY)


def test_entropy_threshold_is_chosen() -> None:
    assert entropy(60)("9f86d081884c7d6") is None
    assert entropy(61)("9f86d081884c7d6") is not None


def test_entropy_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"^bits must be"):
        entropy(0)


@pytest.mark.parametrize("key", ["a" * 254 + "B", "Abc" * 84 + "1x2", "aB" * 127, "1" * 253 + "ab"])
def test_the_estimate_takes_no_time(key: str) -> None:
    """A pattern that goes back and forth would take for ever on one of these."""
    assert timeit(lambda: unguessable(key), number=10) < 1


@UNTIMED
@given(st.binary(min_size=24, max_size=24), st.binary(min_size=16, max_size=16))
def test_random_bytes_in_their_usual_forms_are_unguessable(many: bytes, some: bytes) -> None:
    """Hypothesis prefers zeros; their digests are as random as keys are."""
    many, some = sha256(many).digest()[:24], sha256(some).digest()[:16]
    assert unguessable(some.hex()) is None
    assert unguessable(many.hex().upper()) is None


@UNTIMED
@given(st.uuids(version=4))
def test_a_uuid_is_unguessable_and_no_number(value: uuid.UUID) -> None:
    assert unguessable(str(value)) is None
    assert no_personal_data(str(value)) is None
    assert no_personal_data(f"order-{value}") is None


PERSONAL = [
    ("e-mail address", "ann@example.org", True),
    ("e-mail address inside", "signup:ann.b+c@mail.example.org:1", True),
    ("encoded e-mail address", "ann%40example.org", True),
    ("an at sign alone", "ann@home", False),
    ("international number", "+491701234567", True),
    ("short international number", "+4930123", True),
    ("spaced number", "+49 170 1234567", True),
    ("number with 00", "0049170123456789", True),
    ("national number", "tel-(555) 123-4567", True),
    ("9 digits", "123456789", True),
    ("8 digits", "12345678", False),
    ("15 digits", "123456789012345", True),
    ("16 digits", "1234567890123456", False),
    ("card", "4111111111111111", True),
    ("card in groups", "pay-4111 1111 1111 1111", True),
    ("card of 19 digits", "6304000000000000000", True),
    ("20 digits that pass Luhn", "00000000000000000000", False),
    ("card with a wrong digit", "4111111111111112", False),
    ("digits that begin a word", "1234567890b", False),
    ("digits that end a word", "a1234567890", False),
    ("ISO date and counter", "2026-11-18-0001", False),
    ("number after a date", "2026-11-18-5551234567", True),
    ("UUID with digits only", "55084000-1234-4123-8123-446655440000", False),
    ("hash", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", False),
    ("ULID", ULID, False),
]


def test_personal_data() -> None:
    assert all_as_said((name, no_personal_data(key) is not None, personal) for name, key, personal in PERSONAL)
    assert [name for name, key, _ in PERSONAL if key in (no_personal_data(key) or "")] == [], "an objection shows a key"


UNGUESSABLE = [
    ("UUID", UUID, True),
    ("UUID without hyphens", UUID.replace("-", ""), True),
    ("UUID as URN", f"urn:uuid:{UUID}", True),
    ("UUID in braces", f"{{{UUID}}}", True),
    ("UUID as base64", "CxydnkxvSlObWA9a1aDA3g", True),
    ("22 random characters", "9GkX2pQ7rLw4TzB8nVc5Yd", True),
    ("21 random characters", "9GkX2pQ7rLw4TzB8nVc5Y", False),
    ("random hex", "9f86d081884c7d659a2feaa0c55ad015", True),
    ("random, of one case", "k3j9x0q7z5m2v8w1b6n4t7r2p", True),
    ("ULID", "01KBZ4Q8M3T7X9W2V5R6N8P1HJ", True),
    ("name and UUID", f"order-{UUID}", True),
    ("UUID of version 7", "019aa3c4-5d6e-7f80-9a1b-2c3d4e5f6071", True),
    ("UUID of version 1", "ad393cd4-e40d-11f1-a380-02fc00000001", False),
    ("UUID of zeros", "00000000-0000-4000-8000-000000000001", False),
    ("one character", "k" * 40, False),
    ("a period of three", "aB1" * 12, False),
    ("date and counter", "order-2026-11-19-000001", False),
    ("time", "orders/2026/11/19/T10:15:30.123456Z/000001", False),
    ("basic time", "20261119T101530Z-order-000001-00000000", False),
    ("words", "checkout-cart-17-customer-ada-lovelace-attempt-1", False),
    ("camel case", "CustomerInvoicePaymentNumberTwentyTwo17", False),
    ("words and numbers", "INV2026-000123-ACME-GMBH-EUR-100.00", False),
    ("digits", "1234567890123456789012345678901234567890", False),
]


def test_unguessable() -> None:
    assert all_as_said((name, unguessable(key) is None, good) for name, key, good in UNGUESSABLE)


def test_all_of_gives_the_first_objection() -> None:
    both = all_of(unguessable, no_personal_data)
    assert both(UUID) is None
    assert both("short") == unguessable("short")
    assert both(f"{UUID}.somebody@example.org") == no_personal_data("a@example.org")
    assert all_of()("short") is None


@UNTIMED
@given(st.lists(st.text(), max_size=3), st.booleans())
def test_any_text_is_a_key_or_an_invalid_key(lines: list[str], strict: bool) -> None:
    check_any(lines, strict)


MARKS = st.text(alphabet='ab1.-"\\,;=?@:%() *\t\x7f\xe9', max_size=20)


@UNTIMED
@given(st.lists(MARKS, min_size=1, max_size=2), st.booleans())
def test_any_structure_is_a_key_or_an_invalid_key(lines: list[str], strict: bool) -> None:
    check_any(lines, strict)


def check_any(lines: list[str], strict: bool) -> None:
    reason, key = "", ""
    try:
        key = parse_key(lines, KeyRule(strict=strict))
    except InvalidKey as refusal:
        reason = refusal.reason
    assert reason in {*REASONS, "too_long"} or (key.isascii() and key.isprintable() and 1 <= len(key) <= 255)


PRINTABLE = st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255)


@UNTIMED
@given(PRINTABLE.filter(lambda key: key.strip(" ")), st.booleans())
def test_any_printable_key_survives_quoting(key: str, strict: bool) -> None:
    assert parse_key([http_sf.ser(key)], KeyRule(strict=strict)) == key


BARE = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='",;'), min_size=1)


@UNTIMED
@given(BARE.filter(lambda key: len(key) <= 255))
def test_bare_and_quoted_are_one_key(key: str) -> None:
    assert parse_key([key]) == parse_key([http_sf.ser(key)]) == key
