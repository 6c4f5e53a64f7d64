"""A proxy between a client and an HTTP service that loses, cuts and delays what it carries."""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from struct import pack
from threading import Thread
from typing import Final


class Fate(StrEnum):
    """What becomes of one request and its response."""

    CARRIED = "carried"
    REQUEST_LOST = "request lost"
    REQUEST_CUT = "half of the request arrived"
    RESPONSE_LOST = "response lost"
    RESPONSE_CUT = "half of the response arrived"
    DELAYED = "both delayed"


WEIGHTS: Final = {
    Fate.CARRIED: 50,
    Fate.REQUEST_LOST: 10,
    Fate.REQUEST_CUT: 10,
    Fate.RESPONSE_LOST: 10,
    Fate.RESPONSE_CUT: 10,
    Fate.DELAYED: 10,
}
DELAYS: Final = (0.01, 0.05, 0.2, 0.8)  # seconds, for the request and again for the response
LONGEST: Final = 30  # seconds that the service may take

Moment = Callable[[], object]


class LossyProxy:
    """Listens on a port of its own. Calls `moment` when a request arrives, was forwarded, and has its response."""

    def __init__(self, service_port: int, seed: int, moment: Moment) -> None:
        self.service = ("127.0.0.1", service_port)
        self.moment = moment
        self.fates: Counter[Fate] = Counter()
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Carry one request after the other until one is lost or the client leaves."""
        with closing(client), suppress(OSError, EOFError):
            buffer = bytearray()
            while True:
                request = read_message(client, buffer)
                fate = self._choose()
                if not self._carry(fate, request, client):
                    return hang_up(client)

    def _choose(self) -> Fate:
        (fate,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.fates[fate] += 1
        return fate

    def _carry(self, fate: Fate, request: bytes, client: socket.socket) -> bool:
        """Return whether the client got the whole response."""
        self.moment()
        if fate is Fate.REQUEST_LOST:
            return False
        with closing(socket.create_connection(self.service, timeout=LONGEST)) as service:
            self._delay(fate)
            service.sendall(self._half(request) if fate is Fate.REQUEST_CUT else request)
            if fate is Fate.REQUEST_CUT:
                return False
            self.moment()
            response = read_message(service, bytearray())
            self.moment()
        if fate is Fate.RESPONSE_LOST:
            return False
        self._delay(fate)
        client.sendall(self._half(response) if fate is Fate.RESPONSE_CUT else response)
        return fate is not Fate.RESPONSE_CUT

    def _delay(self, fate: Fate) -> None:
        if fate is Fate.DELAYED:
            time.sleep(self._random.choice(DELAYS))

    def _half(self, message: bytes) -> bytes:
        """Return a part of the message: a part of its headers, or all of them and a part of its body."""
        return message[: self._random.randrange(1, len(message))]


@contextmanager
def lossy_proxy(service_port: int, seed: int, moment: Moment) -> Iterator[LossyProxy]:
    proxy = LossyProxy(service_port, seed, moment)
    try:
        yield proxy
    finally:
        proxy.close()


def read_message(peer: socket.socket, buffer: bytearray) -> bytes:
    """Read one HTTP message with a Content-Length, and leave the bytes after it in the buffer."""
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        receive(peer, buffer)
    size = end + 4 + content_length(bytes(buffer[:end]))
    while len(buffer) < size:
        receive(peer, buffer)
    message = bytes(buffer[:size])
    del buffer[:size]
    return message


def receive(peer: socket.socket, buffer: bytearray) -> None:
    more = peer.recv(65536)
    if not more:
        raise EOFError
    buffer += more


def content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def hang_up(peer: socket.socket) -> None:
    """Reset the connection, as a network that fails does."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
