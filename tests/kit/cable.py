"""The line between a client and its database, which can be cut or go silent; it knows no protocol."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread


class Cable:
    """A listening socket; what comes in goes out at the other end, as long as the line works."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self.connect = connect
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self.listener.getsockname()[1]
        self.plugged, self.flowing = Event(), Event()
        self._open: list[socket.socket] = []
        self.repair()
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, and new ones break at once."""
        self.plugged.clear()
        for each in self._open:
            hang_up(each)
        self._open.clear()

    def silence(self) -> None:
        """Connections stay and are accepted, and nothing comes through: what a database that hangs looks like."""
        self.flowing.clear()

    def repair(self) -> None:
        self.plugged.set()
        self.flowing.set()

    def close(self) -> None:
        self.cut()
        self.flowing.set()
        hang_up(self.listener)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                if not self.plugged.is_set():
                    hang_up(near)
                    continue
                far = self.connect()
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.flowing.wait()
                sink.sendall(data)
        for each in (source, sink):
            hang_up(each)


@contextmanager
def laid(connect: Callable[[], socket.socket]) -> Iterator[Cable]:
    cable = Cable(connect)
    try:
        yield cable
    finally:
        cable.close()


def hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
