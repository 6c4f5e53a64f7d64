"""The append-only ledger: one line of JSON per charge, and the only witness of what was charged."""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import IO

from testproject.gateway.charges import Charge, KeyReused, Order


class Ledger:
    """Threads share one object; processes share one file, locked while it is read and extended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._charges: list[Charge] = []
        self._read_up_to = 0
        self._lock = Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def charge(self, order: Order, key: str | None, *, dedupe: bool) -> tuple[Charge, bool]:
        """The charge and whether it is new."""
        with self._opened() as file:
            if dedupe and key is not None and (found := self._with_key(key)):
                if found[0].fingerprint != order.fingerprint:
                    raise KeyReused(f"the key belongs to {found[0].id}, an order with other contents")
                return found[0], False
            return self._append(file, order, key), True

    def find(self, key: str) -> list[Charge]:
        with self._opened():
            return self._with_key(key)

    def charges(self) -> list[Charge]:
        with self._opened():
            return list(self._charges)

    def clear(self) -> None:
        with self._opened() as file:
            file.truncate(0)

    @contextmanager
    def _opened(self) -> Iterator[IO[str]]:
        with self._lock, self.path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._catch_up(file)
            yield file

    def _catch_up(self, file: IO[str]) -> None:
        if file.seek(0, 2) < self._read_up_to:
            self._charges, self._read_up_to = [], 0
        file.seek(self._read_up_to)
        self._charges += [Charge(**json.loads(line)) for line in file.readlines()]
        self._read_up_to = file.tell()

    def _append(self, file: IO[str], order: Order, key: str | None) -> Charge:
        charge = Charge(
            id=f"ch_{secrets.token_hex(12)}",
            key=key,
            fingerprint=order.fingerprint,
            amount=order.amount,
            currency=order.currency,
            customer=order.customer,
            time=datetime.now(UTC).isoformat(),
        )
        file.write(json.dumps(charge.as_json()) + "\n")
        file.flush()
        return charge

    def _with_key(self, key: str) -> list[Charge]:
        return [charge for charge in self._charges if charge.key == key]
