"""Names of HTTP header fields, as rules list them."""

import re
from collections.abc import Iterable
from typing import Final

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def header_names(argument: str, names: Iterable[str]) -> tuple[str, ...]:
    """Lower-case names in their order; ValueError names the argument that holds something else."""
    if isinstance(names, str):
        raise ValueError(f"{argument} must be a collection of header names, not one string: {names!r}.")
    lowered = tuple(name.lower() for name in names)
    for name in lowered:
        if not TOKEN.fullmatch(name):
            raise ValueError(f"{argument} holds {name!r}, which is not a header name.")
    return lowered
