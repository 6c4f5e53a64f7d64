"""The form of a body in which requests that mean the same are the same; None where only the bytes can be compared."""

import json
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

import rfc8785

Named = TypeVar("Named", bound=Sequence[bytes])


def canonical_json(body: bytes, paths: Collection[str] | None = None) -> bytes | None:
    """RFC 8785: member order, white space and escapes do not matter, and 1, 1.0 and 1e0 are one number.

    None for what two readers may read differently: duplicate members, NaN, integers from 2**53 on, numbers that a
    double cannot hold as written, lone surrogates, nesting too deep to follow, anything that is not UTF-8 JSON.
    """
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_members, parse_float=_double, parse_constant=_refuse_constant
        )
        chosen = value if paths is None else _choose(value, paths)
        return rfc8785.dumps(chosen)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def canonical_form(body: bytes, names: Collection[str] | None = None) -> list[tuple[bytes, bytes]]:
    """The pairs that the WHATWG parser for forms finds, sorted by name; those with one name keep their order."""
    return by_name(map(_pair, filter(None, body.split(b"&"))), names)


def without_fields(body: bytes, names: Collection[str]) -> bytes:
    """The form as it was sent, less the pairs of these names; the very same bytes where there is none."""
    unwanted = {encoded(name) for name in names}
    return b"&".join(pair for pair in body.split(b"&") if _pair(pair)[0] not in unwanted)


def by_name(entries: Iterable[Named], names: Collection[str] | None) -> list[Named]:
    """The entries whose first part is one of the names (all, when None), stably sorted by it."""
    wanted = None if names is None else {encoded(name) for name in names}
    return sorted((entry for entry in entries if wanted is None or entry[0] in wanted), key=lambda entry: entry[0])


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _pair(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.replace(b"+", b" ").partition(b"=")
    return unquote_to_bytes(name), unquote_to_bytes(value)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate member")
    return members


def _double(text: str) -> float:
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise ValueError("not exactly a double")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _choose(value: Any, paths: Collection[str]) -> dict[str, Any]:
    """The members at the dotted paths; an object that has none of them says nothing that could be compared."""
    chosen = {}
    for path in paths:
        at = value
        for name in path.split("."):
            if not isinstance(at, dict) or name not in at:
                break
            at = at[name]
        else:
            chosen[path] = at
    if not chosen:
        raise ValueError("none of the chosen fields")
    return chosen
