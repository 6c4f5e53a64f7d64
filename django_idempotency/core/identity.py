"""Ids of records and downstream keys. Each of them leads to the other."""

from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

_ID_LENGTH = 36


class Ref(NamedTuple):
    """The address of one record."""

    scope: str
    id: UUID
    using: str  # the alias of its database


def make_record_id(scope: str, key: str) -> UUID:
    """Return the id of the record of this scope and key, equal in every database."""
    digest = sha256()
    for part in (scope.encode(), key.encode()):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return UUID(bytes=digest.digest()[:16], version=5)


def derive_key(record: UUID, step: str) -> str:
    """Return the downstream key of a step: equal for every attempt, different for every step."""
    return f"{record}-{step}"


def parse_record_id(reference: UUID | str) -> UUID | None:
    """Return the record id that an id or a downstream key begins with; None if it is neither."""
    text = str(reference)
    if text[_ID_LENGTH : _ID_LENGTH + 1] not in ("", "-"):
        return None
    try:
        return UUID(text[:_ID_LENGTH])
    except ValueError:
        return None
