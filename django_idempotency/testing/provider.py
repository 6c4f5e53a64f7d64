"""An external service for tests, which keeps a ledger and can lose requests or responses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from uuid import uuid4


class AnswerLost(ConnectionError):
    """No response came: the provider may have done the work, or may not have received the request."""


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One effect at the provider."""

    id: str
    key: str | None
    payload: Any


@dataclass
class FakeProvider:
    """A provider whose `ledger` shows what happened. With `deduplicates=False` it ignores downstream keys."""

    deduplicates: bool = True
    ledger: list[ProviderEntry] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)  # of every request that arrived, repeated ones too
    _losing: str = ""
    _lock: Any = field(default_factory=Lock, repr=False)

    def send(self, payload: Any, key: str | None = None) -> ProviderEntry:
        """Do the work once per key, and return its entry. Raise ValueError if the key was sent with another payload."""
        if self._losing == "requests":
            raise AnswerLost("The request never arrived.")
        with self._lock:
            self.keys.append(key)
            entry = self.find(key) if self.deduplicates else None
            if entry is None:
                entry = ProviderEntry(uuid4().hex, key, payload)
                self.ledger.append(entry)
        if entry.payload != payload:
            raise ValueError(f"The downstream key {key!r} was used before, with another payload.")
        if self._losing == "answers":
            raise AnswerLost("The work is done, and its answer was lost.")
        return entry

    def find(self, key: str | None) -> ProviderEntry | None:
        """Return the effect of this key, for a reconciler; None if it had none."""
        return next((entry for entry in self.ledger if key is not None and entry.key == key), None)

    @contextmanager
    def losing(self, what: str = "answers") -> Iterator[None]:
        """Inside the block, lose the "answers", after the work, or the "requests", before it."""
        if what not in ("answers", "requests"):
            raise ValueError(f'Either "answers" or "requests" can be lost, and not {what!r}.')
        before, self._losing = self._losing, what
        try:
            yield
        finally:
            self._losing = before
