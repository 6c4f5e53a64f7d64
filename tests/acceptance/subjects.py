"""The writes that retries are tried on, how often each took effect, and how to hold one while it runs."""

from __future__ import annotations

import fcntl
import json
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from testproject.http import Answer
from tests.kit.journal import Journal
from tests.kit.processes import Site
from tests.kit.threads import wait_until

VOLATILE = ("Date", "Idempotency-Replayed")


@dataclass(frozen=True)
class Subject:
    """A route, and which member of its body names the account whose effects are counted."""

    path: str
    member: str
    body: Mapping[str, Any] = field(default_factory=dict)
    empty: Mapping[str, Any] = field(default_factory=lambda: {"simulate": {"status": 204}})  # asks for a 204
    fails: Mapping[str, Any] = field(default_factory=lambda: {"simulate": {"fail": "after"}})  # asks for an exception

    def __str__(self) -> str:
        return self.path.strip("/")

    @property
    def charges(self) -> bool:
        return "payments" in self.path

    @property
    def late(self) -> bool:
        """No transaction is open while it is held."""
        return self.charges or self is LATE

    def order(self, account: str, **more: Any) -> dict[str, Any]:
        return {**self.body, self.member: account, **more}

    def effects(self, site: Site, account: str) -> int:
        """What the gateway charged, or what was booked."""
        if self.charges:
            return sum(charge["customer"] == account for charge in site.charges())
        return len(site.rows("SELECT id FROM payments_ledgerentry WHERE account = %s", account))

    def began(self, site: Site, account: str) -> bool:
        if self.charges:
            return any(order["customer"] == account for order in site.orders())
        return Journal(site.service.log.parent).count(account) > 0

    @contextmanager
    def held(self, site: Site) -> Iterator[None]:
        """Whoever runs waits: at the gateway's ledger before the charge, or at the gate before the booking."""
        if not self.charges:
            with Journal(site.service.log.parent).gate_closed():
                yield
            return
        with (site.gateway.log.parent / "gateway.jsonl").open("a") as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            yield

    @contextmanager
    def running(self, site: Site, account: str, key: str) -> Iterator[Future[Answer]]:
        """The first request, begun and held; it goes on after the block."""
        with ThreadPoolExecutor(1) as pool, self.held(site):
            first = pool.submit(site.alice.post, self.path, self.order(account), key=quoted(key))
            wait_until(lambda: self.began(site, account) or first.done())
            yield first


MONEY = {"amount": 1200, "currency": "EUR"}
PAYMENTS = Subject("/payments/", "customer", MONEY)
ASYNC = Subject("/async/payments/", "customer", MONEY)
TRANSFERS = Subject("/transfers/", "to", {"from": "savings", "amount": 5})
WHOLE = Subject("/bookings/whole", "account", empty={"empty": True}, fails={"fail": True})
LATE = Subject("/bookings/late", "account", empty={"empty": True}, fails={"fail": True})
ATOMIC = Subject("/bookings/atomic", "account", empty={"empty": True}, fails={"fail": True})

EVERY = (PAYMENTS, ASYNC, TRANSFERS, WHOLE, LATE)
LEASED = (PAYMENTS, ASYNC, WHOLE, LATE)


@contextmanager
def connected(site: Site, path: str, order: dict[str, Any], key: str) -> Iterator[None]:
    """A client that sends a request and hangs up at the end of the block."""
    body = json.dumps(order).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Token alice-token\r\nIdempotency-Key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", site.service.port)) as connection:
        connection.sendall(head.encode() + body)
        yield


def new() -> str:
    """A key, or the name of an account."""
    return str(uuid4())


def quoted(key: str) -> str:
    return f'"{key}"'


def code(answer: Answer) -> str:
    return str(answer.json()["code"])


def refused_as(answer: Answer, status: int, expected: str) -> bool:
    return (answer.status, code(answer)) == (status, f"idempotency_{expected}")


def is_replay(answer: Answer, first: Answer) -> bool:
    """The same status, bytes and headers, and the mark. No cache keeps it unless the view said so."""
    assert (answer.status, answer.body) == (first.status, first.body)
    assert lasting(answer) == {"Cache-Control": "no-store", **lasting(first)}
    assert "Idempotency-Replayed" not in first.headers
    return answer.headers["Idempotency-Replayed"] == "true"


def lasting(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in VOLATILE}


def status_of(site: Site, key: str) -> str | None:
    """What the only record of a key says."""
    found = site.rows("SELECT k.status FROM idempotency_key k WHERE k.key = %s", key)
    assert len(found) < 2
    return found[0][0] if found else None


def records(site: Site) -> int:
    return int(site.rows("SELECT COUNT(*) FROM idempotency_key")[0][0])


def let_the_lease_run_out(site: Site, key: str) -> None:
    """As if its time had passed."""
    lapse = "UPDATE idempotency_key SET locked_until = created_at WHERE status = 'in_progress'"
    site.rows(f"{lapse} AND idempotency_key.key = %s", key)


def let_it_expire(site: Site, key: str) -> None:
    site.rows("UPDATE idempotency_key SET expires_at = created_at WHERE idempotency_key.key = %s", key)
