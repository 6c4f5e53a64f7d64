"""Clients of `outside` and `atomic`, two of the served views, that send new keys and send them again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Final
from uuid import uuid4

from testproject.http import Answer, exchange

CLIENTS: Final = 8
PAUSE: Final = 0.1  # seconds before a client that got no response, or an error, sends again


@dataclass(frozen=True)
class Sent:
    """A request as its client saw it."""

    key: str
    began: float
    ended: float
    is_acknowledged: bool


@contextmanager
def sending(service: str) -> Iterator[list[Sent]]:
    """Send new keys until the end of the block."""
    sent, stopped = list[Sent](), Event()

    def be_client() -> None:
        while not stopped.is_set():
            key, began = str(uuid4()), time.monotonic()
            answer = send(service, key)
            acknowledged = answer is not None and answer.status == 201
            sent.append(Sent(key, began, time.monotonic(), acknowledged))
            if not acknowledged:
                time.sleep(PAUSE)

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(be_client) for _ in range(CLIENTS)]
        try:
            yield sent
        finally:
            stopped.set()
    for client in clients:
        client.result()


def send(service: str, key: str) -> Answer | None:
    """Return the response; None if there was none."""
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    try:
        return exchange("POST", service, body=b'{"amount": 1}', headers=headers, timeout=30)
    except OSError:
        return None


def send_again(service: str, key: str, *, until: Collection[int]) -> Answer:
    """Send the key until the response has one of these statuses."""
    while (answer := send(service, key)) is None or answer.status not in until:
        time.sleep(PAUSE)
    return answer
