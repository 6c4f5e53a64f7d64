"""What the replay cache holds of a completed record: bytes that begin with a keyed digest of the rest."""

import hmac
import json
from dataclasses import dataclass, fields, replace
from typing import Final
from uuid import UUID

from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Record
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import LostLease, Status

# What an entry holds of a completed record. The call has the rest, and the response is written behind it.
_STORED: Final = [
    each.name
    for each in fields(Record)
    if each.name not in {"id", "scope", "key", "status", "lease_left", "check_in", "reply"}
]
# Part of each entry's name, so that entries in another format are never found.
_FORMAT: Final = ["2", *_STORED]
LONGEST_LIFE: Final = 300.0  # seconds that an entry may live, however long its record is kept
CLOCK_MARGIN: Final = 5.0  # seconds by which the clocks of two processes may differ
_DIGEST_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class CachedRecord:
    """A completed record, and when it may be replayed, by the clocks of the processes."""

    asked: float  # the record was read after this
    until: float
    record: Record

    @classmethod
    def of(cls, record: Record, asked: float) -> "CachedRecord":
        """Make the entry of a record that was read after `asked`. It ends before the record expires."""
        left = LONGEST_LIFE if record.expires_in is None else min(LONGEST_LIFE, record.expires_in - CLOCK_MARGIN)
        return cls(asked, asked + left, record)

    def record_at(self, now: float) -> Record | None:
        """Return the record with the times that it has left now; None if the entry may not be used now."""
        passed = now - self.asked
        if passed < -CLOCK_MARGIN or now >= self.until:
            return None
        record = self.record
        return replace(
            record,
            grace_left=_shift(record.grace_left, -passed),
            expires_in=_shift(record.expires_in, -passed),
            ran_ago=_shift(record.ran_ago, passed),
            age=_shift(record.age, passed),
        )


def _shift(seconds: float | None, by: float) -> float | None:
    return None if seconds is None else seconds + by


def make_name(environment: list[str], record: UUID, secret: bytes) -> str:
    """Return the name of a record's entry. It reveals nothing, and is another one in every environment."""
    return _digest(json.dumps([_FORMAT, *environment, str(record)]).encode(), secret).hex()


def seal_entry(entry: CachedRecord, name: str, secret: bytes) -> bytes:
    """Return an entry as bytes that count under this name only."""
    record, reply = entry.record, entry.record.reply
    assert reply is not None  # noqa: S101 - completed records have one; here for the type checker
    stored = {name: getattr(record, name) for name in _STORED}
    stored["token"] = None if record.token is None else record.token.hex
    head = [entry.asked, entry.until, stored, [reply.status, reply.headers, reply.schema_version, reply.omitted]]
    content = json.dumps(head).encode() + b"\n" + (reply.body or b"")
    return _digest(content, secret, name) + content


def open_entry(sealed: object, name: str, secret: bytes, call: Call) -> CachedRecord | None:
    """Return the entry in these bytes; None if they were not sealed under this name with this secret."""
    if not isinstance(sealed, bytes):
        return None
    digest, content = sealed[:_DIGEST_LENGTH], sealed[_DIGEST_LENGTH:]
    if not hmac.compare_digest(digest, _digest(content, secret, name)):
        return None
    head, _, body = content.partition(b"\n")
    asked, until, stored, (status, headers, schema_version, omitted) = json.loads(head)
    stored["token"] = None if stored["token"] is None else UUID(stored["token"])
    stored["on_lost_lease"] = LostLease(stored["on_lost_lease"])
    named = tuple((name, value) for name, value in headers)
    reply = Reply(status, named, None if omitted else body, schema_version)
    record = Record(id=call.id, scope=call.scope, key=call.key, status=Status.COMPLETED, reply=reply, **stored)
    return CachedRecord(asked, until, record)


def _digest(content: bytes, secret: bytes, name: str = "") -> bytes:
    return hmac.digest(secret, name.encode() + b"\n" + content, "sha256")
