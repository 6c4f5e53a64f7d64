"""A call, an attempt that won it, and work that leaves a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from django.dispatch import Signal

from django_idempotency import FingerprintRule, Policy, Reply
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.claim import begin
from testproject.payments.models import LedgerEntry

BOOKED = Reply(201, (("Content-Type", "text/plain"),), b"booked")
REFUSED = Reply(402, (), b"no funds")


def a_call(
    key: str | None = None, *, body: bytes = b'{"amount": 5}', operation: str = "payments.create", **policy: Any
) -> Call:
    """A request of alice's; every call has a key of its own unless one is given."""
    parts = RequestParts("POST", "/payments", "", "application/json", body)
    fingerprint = seal(parts, FingerprintRule())
    return Call("alice payments", key or uuid4().hex, fingerprint, Policy(**policy), operation=operation)


@dataclass
class Booking:
    """Work: books one entry, then answers or raises; remembers how often it ran and what it found."""

    call: Call
    raises: BaseException | None = None
    reply: Reply = BOOKED
    using: str = "default"
    found: list[int] = field(default_factory=list)

    def __call__(self, attempt: Attempt | None = None) -> tuple[str, Reply]:
        self.found.append(bookings(self.call))
        LedgerEntry.objects.using(self.using).create(reference=self.call.key, account="cash", amount=5)
        if self.raises is not None:
            raise self.raises
        return "booked", self.reply

    @property
    def runs(self) -> int:
        return len(self.found)


def handler(call: Call, using: str = "default") -> Callable[[object], tuple[str, Reply]]:
    """Work that sends one statement and no more: it books one entry."""

    def book(attempt: object) -> tuple[str, Reply]:
        LedgerEntry.objects.using(using).create(reference=call.key, account="cash", amount=5)
        return "booked", BOOKED

    return book


def claimed(call: Call) -> Attempt:
    """Begin, which has to win."""
    attempt = begin(call)
    assert isinstance(attempt, Attempt), attempt
    return attempt


def refused(call: Call) -> Answer:
    """Begin, which has to be answered."""
    answer = begin(call)
    assert not isinstance(answer, Attempt), answer
    return answer


def bookings(call: Call) -> int:
    return LedgerEntry.objects.filter(reference=call.key).count()


@contextmanager
def heard(signal: Signal, then: Callable[[], None] = lambda: None) -> Iterator[list[dict[str, Any]]]:
    """What a signal brought; `then` runs in the receiver."""
    brought: list[dict[str, Any]] = []

    def receive(sender: object, **payload: Any) -> None:
        brought.append(payload)
        then()

    signal.connect(receive)
    try:
        yield brought
    finally:
        signal.disconnect(receive)
