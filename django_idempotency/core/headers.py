"""Names of HTTP header fields in the rules of a policy."""

import re
from collections.abc import Iterable
from typing import Final

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def lower_header_names(argument: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in lower case; raise ValueError, with the argument's name, if one is no header name."""
    if isinstance(names, str):
        raise ValueError(f"{argument} must be a collection of header names, not one string: {names!r}.")
    lowered = tuple(name.lower() for name in names)
    for name in lowered:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{argument} holds {name!r}, which is not a header name.")
    return lowered
