"""Stands between a client and PostgreSQL and steals one message of the client's, or the answer to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from struct import pack, unpack
from threading import Event, Thread
from typing import Any

from django.db import connection

from tests.kit.cable import hang_up
from tests.kit.databases import another_alias

ALIAS = "through_the_proxy"


class Theft(Enum):
    """What becomes of the message and its answer."""

    MESSAGE = "the connection is cut before the message is forwarded"
    ANSWER = "forwarded; its answer is muted, then the connection is cut"
    SILENCE = "forwarded; its answer is muted, and nothing is cut"
    DELAY = "the client is cut off at once; the message is forwarded when the test says so"


class Proxy:
    """A listening socket; each connection gets two pumps."""

    def __init__(self, host: str, port: int) -> None:
        self.server = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.forward = Event()
        self.stolen = Event()
        self._wanted: tuple[bytes, Theft] | None = None
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def steal(self, beginning: bytes, how: Theft) -> None:
        """The next query that begins like this."""
        self._wanted = (beginning, how)

    def reset(self) -> None:
        """Every connection is reset, as a firewall or a pooler does it: no error of the server's arrives."""
        for each in self._open:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RD)  # wakes the pump that reads from it
                each.close()
        self._open.clear()

    def close(self) -> None:
        for each in (self.listener, *self._open):
            hang_up(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.server)
                self._open += [client, server]
                muted, answered = Event(), Event()
                Thread(target=self._ask, args=(client, server, muted, answered), daemon=True).start()
                Thread(target=self._answer, args=(client, server, muted, answered), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, muted: Event, answered: Event) -> None:
        with suppress(OSError, EOFError):
            server.sendall(read_startup(client))
            while True:
                message = read_message(client)
                theft = self._theft(message)
                if theft is None:
                    server.sendall(message)
                else:
                    self._take(theft, message, client, server, muted, answered)
        hang_up(server)

    def _theft(self, message: bytes) -> Theft | None:
        if self._wanted is None or not message[5:].startswith(self._wanted[0]):
            return None
        theft, self._wanted = self._wanted[1], None
        return theft

    def _take(
        self,
        theft: Theft,
        message: bytes,
        client: socket.socket,
        server: socket.socket,
        muted: Event,
        answered: Event,
    ) -> None:
        muted.set()
        if theft in (Theft.MESSAGE, Theft.DELAY):
            hang_up(client)
        self.stolen.set()
        if theft is Theft.MESSAGE:
            return
        if theft is Theft.DELAY:
            self.forward.wait(60)
        server.sendall(message)
        answered.wait(60)
        if theft is Theft.ANSWER:
            hang_up(client)

    def _answer(self, client: socket.socket, server: socket.socket, muted: Event, answered: Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if muted.is_set():
                    answered.set()
                else:
                    client.sendall(data)
        if not muted.is_set():
            hang_up(client)


@contextmanager
def proxied(host: str, port: int) -> Iterator[Proxy]:
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.forward.set()
        proxy.close()


class Router:
    """The records, and what is written beside them, go through the proxy."""

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return ALIAS


@contextmanager
def alias_through_proxy() -> Iterator[Proxy]:
    """This run's database under another alias, with a proxy in between."""
    server = connection.settings_dict
    options = {**server["OPTIONS"], "sslmode": "disable", "gssencmode": "disable"}
    with (
        proxied(server["HOST"] or "127.0.0.1", int(server["PORT"] or 5432)) as proxy,
        another_alias(ALIAS, HOST="127.0.0.1", PORT=str(proxy.port), OPTIONS=options),
    ):
        yield proxy


def read_startup(client: socket.socket) -> bytes:
    """The first message has no type."""
    head = read_exactly(client, 4)
    return head + read_exactly(client, unpack("!I", head)[0] - 4)


def read_message(client: socket.socket) -> bytes:
    """One byte of type, four of length, which count themselves."""
    head = read_exactly(client, 5)
    return head + read_exactly(client, unpack("!I", head[1:])[0] - 4)


def read_exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
