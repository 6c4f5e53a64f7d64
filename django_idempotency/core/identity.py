"""How records and downstream keys are named, so that one always leads to the other."""

from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

_ID_LENGTH = 36


class Ref(NamedTuple):
    """Where a record is."""

    scope: str
    id: UUID
    using: str  # the alias of its database


def record_id(scope: str, key: str) -> UUID:
    """Return the id of the record of this scope and key, which is the same everywhere."""
    digest = sha256()
    for part in (scope.encode(), key.encode()):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return UUID(bytes=digest.digest()[:16], version=5)


def derived_key(record: UUID, step: str) -> str:
    """Return the key of a downstream call: equal for every attempt, different for every step."""
    return f"{record}-{step}"


def record_named_by(reference: UUID | str) -> UUID | None:
    """Return the record id that an id or a downstream key begins with; None if it is neither."""
    text = str(reference)
    if text[_ID_LENGTH : _ID_LENGTH + 1] not in ("", "-"):
        return None
    try:
        return UUID(text[:_ID_LENGTH])
    except ValueError:
        return None
