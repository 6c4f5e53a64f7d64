"""The address of a record, and the downstream keys that begin with its id. Models import it, so it imports little."""

import re
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID

_ID_LENGTH: Final = 36
NAMESPACE_LENGTH: Final = 12
# What every provider takes, as a header and as JSON, quoted or not: at most 255 visible characters in all.
_PLAIN_STEP: Final = re.compile(r"[!#-\[\]-~]{1,%d}" % (255 - _ID_LENGTH - NAMESPACE_LENGTH - 2))  # noqa: UP031


class Ref(NamedTuple):
    """The address of one record."""

    scope: str
    id: UUID
    using: str  # the alias of its database


def derive_key(record: UUID, namespace: str, step: str) -> str:
    """Return the downstream key of a step: equal for every attempt, different for every step and every namespace.

    `namespace` is the digest that the record holds. A step that does not fit into a header is replaced by its digest.
    """
    named = step if _PLAIN_STEP.fullmatch(step) else sha256(step.encode(errors="surrogatepass")).hexdigest()
    return f"{record}-{namespace}-{named}"


def parse_namespace(reference: UUID | str) -> str | None:
    """Return the namespace that a downstream key was derived in; None for an id."""
    rest = str(reference)[_ID_LENGTH + 1 :]
    return rest.partition("-")[0] if rest else None


def parse_record_id(reference: UUID | str) -> UUID | None:
    """Return the record id that an id or a downstream key begins with; None if it is neither."""
    text = str(reference)
    if text[_ID_LENGTH : _ID_LENGTH + 1] not in ("", "-"):
        return None
    try:
        return UUID(text[:_ID_LENGTH])
    except ValueError:
        return None
