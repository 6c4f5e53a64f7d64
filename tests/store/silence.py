"""A way to the database that can fall silent: connections stay open and nothing gets through any more."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from django.db import connection

from tests.kit.calls import another_alias


class Way:
    """Listens in front of the server and forwards bytes while `open` is set."""

    def __init__(self) -> None:
        self.open = Event()
        self.open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.port = int(self._listener.getsockname()[1])
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.open.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = connect_to_server()
                self._sockets += [client, server]
                for ends in ((client, server), (server, client)):
                    Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.open.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


SERVER = {"postgresql": 5432, "mysql": 3306}


def connect_to_server() -> socket.socket:
    configured = connection.settings_dict
    host, port = configured["HOST"] or "127.0.0.1", int(configured["PORT"] or SERVER[connection.vendor])
    if host.startswith("/"):
        way = socket.socket(socket.AF_UNIX)
        way.connect(f"{host}/.s.PGSQL.{port}")
        return way
    return socket.create_connection((host, port))


@contextmanager
def silenceable(alias: str) -> Iterator[Way]:
    """The run's database under another name, over a way that can fall silent."""
    way = Way()
    try:
        with another_alias(alias, HOST="127.0.0.1", PORT=str(way.port)):
            yield way
            way.close()  # before the connection is: its goodbye would wait for ever
    finally:
        way.close()
