"""Bring bodies with the same meaning into the same form."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from functools import cache
from operator import itemgetter
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

import rfc8785

Named = TypeVar("Named", bound=Sequence[bytes])

MOST_FIELDS: Final = 1000  # as many as Django accepts by default; a hostile form of 2.5 MB has 2,500,000


def canonicalize_json(body: bytes, paths: Collection[str] | None = None, ignored: Collection[str] = ()) -> bytes | None:
    """Return the body as RFC 8785 writes it: member order, white space, escapes and spellings of a number are equal.

    Return None for a body that two parsers may read differently: duplicate members, NaN, integers from 2**53 on,
    numbers that a double cannot hold exactly, lone surrogates, nesting deeper than Python follows, and anything that
    is not JSON in UTF-8.
    """
    reader = _Reader()
    try:
        value = reader.read(body)
        chosen = value if paths is None else _choose(value, paths)
        for path in ignored:
            _remove(chosen, path)
        return _PLAIN.encode(chosen).encode() if reader.is_plain else rfc8785.dumps(chosen)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def canonicalize_form(
    body: bytes, names: Collection[str] | None = None, ignored: Collection[str] = ()
) -> list[tuple[bytes, bytes]] | None:
    """Return the form's pairs as the WHATWG parser reads them, stably sorted by name; None for over 1000 fields."""
    if body.count(b"&") >= MOST_FIELDS:
        return None
    return select_by_name(map(_parse_pair, filter(None, body.split(b"&"))), names, ignored)


def drop_fields(body: bytes, names: tuple[str, ...]) -> bytes:
    """Return the form as it was sent, without the pairs of these names; unchanged if it has none of them.

    Only the first 1000 fields are looked at, and no more of each name than the longest of these names can need.
    """
    unwanted = _spellings_of(names)
    kept: list[bytes] = []
    run = start = 0  # where the run of wanted pairs begins, and the current pair
    for _ in range(MOST_FIELDS):
        end = body.find(b"&", start)
        stop = len(body) if end < 0 else end
        if unwanted.match(body, start, stop):
            if run < start:
                kept.append(body[run : start - 1])
            run = stop + 1
        start = stop + 1
        if end < 0:
            break
    if run == 0:
        return body
    if run <= len(body):
        kept.append(body[run:])
    return b"&".join(kept)


@cache
def _spellings_of(names: tuple[str, ...]) -> re.Pattern[bytes]:
    """Return a pattern of the names at the start of a pair, in every spelling that a form decodes to them."""
    spelled = (b"".join(map(_spellings_of_byte, encode(name))) for name in names)
    return re.compile(rb"(?:" + b"|".join(spelled) + rb")(?:=|\Z)")


def _spellings_of_byte(value: int) -> bytes:
    spelled = [b"%%(?i:%02x)" % value]
    if value == ord("%"):
        spelled.append(rb"%(?![0-9A-Fa-f]{2})")
    elif value not in b"&=+":
        spelled.append(re.escape(bytes((value,))))
    if value == ord(" "):
        spelled.append(rb"\+")
    return b"(?:" + b"|".join(spelled) + b")"


def select_by_name(entries: Iterable[Named], names: Collection[str] | None, ignored: Collection[str]) -> list[Named]:
    """Return the entries whose first item is one of the names (all if None) and not ignored, stably sorted by it."""
    wanted, unwanted = None if names is None else set(map(encode, names)), set(map(encode, ignored))
    chosen = (each for each in entries if (wanted is None or each[0] in wanted) and each[0] not in unwanted)
    return sorted(chosen, key=itemgetter(0))


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _parse_pair(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.replace(b"+", b" ").partition(b"=")
    return unquote_to_bytes(name), unquote_to_bytes(value)


# Writes plain values as RFC 8785 does, in C.
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":"))
_UNSAFE: Final = 2**53  # from here on, doubles leave integers out
_DEEPEST: Final = 1000  # Python 3.13 lets its encoder go so deep that a thread's stack may overflow


class _Reader:
    """Reads JSON. `is_plain` tells whether Python's encoder sorts its names and writes its numbers as RFC 8785 does."""

    def __init__(self) -> None:
        self.is_plain = True

    def read(self, body: bytes) -> Any:
        if body.count(b"{") + body.count(b"[") > _DEEPEST:
            self.is_plain = False
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=self._to_members,
            parse_float=self._to_double,
            parse_int=self._to_integer,
            parse_constant=_refuse_constant,
        )

    def _to_members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("duplicate member")
        if not "".join(members).isascii():
            self.is_plain = False  # RFC 8785 sorts by the code units of UTF-16
        return members

    def _to_integer(self, text: str) -> int:
        number = int(text)
        if abs(number) >= _UNSAFE:
            self.is_plain = False  # RFC 8785 does not write it
        return number

    def _to_double(self, text: str) -> float:
        number = float(text)
        shortest = repr(number)
        if shortest != text and Decimal(shortest) != Decimal(text):
            raise ValueError("not exactly a double")
        if number.is_integer() and abs(number) < _UNSAFE:
            return int(number)
        if not 1e-4 <= abs(number) < _UNSAFE:
            self.is_plain = False  # RFC 8785 and Python use an exponent for different numbers
        return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _choose(value: Any, paths: Collection[str]) -> dict[str, Any]:
    """Return the members at the dotted paths; ValueError if there is none, so that the bytes are compared instead."""
    chosen = {}
    for path in paths:
        found = value
        for name in path.split("."):
            if not isinstance(found, dict) or name not in found:
                break
            found = found[name]
        else:
            chosen[path] = found
    if not chosen:
        raise ValueError("none of the chosen fields")
    return chosen


def _remove(value: Any, path: str) -> None:
    """Remove the member at a dotted path, if there is one."""
    *parents, name = path.split(".")
    for parent in parents:
        value = value.get(parent) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(name, None)
