"""Bring bodies with the same meaning into the same form."""

import json
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

import rfc8785

Named = TypeVar("Named", bound=Sequence[bytes])


def canonicalize_json(body: bytes, paths: Collection[str] | None = None) -> bytes | None:
    """Return the body as RFC 8785 writes it: member order, white space, escapes and spellings of a number are equal.

    Return None for a body that two parsers may read differently: duplicate members, NaN, integers from 2**53 on,
    numbers that a double cannot hold exactly, lone surrogates, nesting deeper than Python follows, and anything that
    is not JSON in UTF-8.
    """
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_to_members, parse_float=_to_double, parse_constant=_refuse_constant
        )
        chosen = value if paths is None else _choose(value, paths)
        return rfc8785.dumps(chosen)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def canonicalize_form(body: bytes, names: Collection[str] | None = None) -> list[tuple[bytes, bytes]]:
    """Return the form's pairs as the WHATWG parser reads them, stably sorted by name."""
    return select_by_name(map(_parse_pair, filter(None, body.split(b"&"))), names)


def drop_fields(body: bytes, names: Collection[str]) -> bytes:
    """Return the form as it was sent, without the pairs of these names; unchanged if it has none of them."""
    unwanted = {encode(name) for name in names}
    return b"&".join(pair for pair in body.split(b"&") if _parse_pair(pair)[0] not in unwanted)


def select_by_name(entries: Iterable[Named], names: Collection[str] | None) -> list[Named]:
    """Return the entries whose first item is one of the names (all if None), stably sorted by it."""
    wanted = None if names is None else {encode(name) for name in names}
    return sorted((entry for entry in entries if wanted is None or entry[0] in wanted), key=lambda entry: entry[0])


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _parse_pair(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.replace(b"+", b" ").partition(b"=")
    return unquote_to_bytes(name), unquote_to_bytes(value)


def _to_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate member")
    return members


def _to_double(text: str) -> float:
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise ValueError("not exactly a double")
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
