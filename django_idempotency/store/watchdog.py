"""A deadline for a database that hangs.

No server setting bounds a server that has stopped: the kernel goes on acknowledging. So one daemon thread watches the
deadlines and shuts the socket of a call that passed its own; the driver then raises as for any lost connection.
"""

import os
import socket
import threading
from contextlib import suppress
from time import monotonic
from typing import Final

from django_idempotency.store.threads import start_for_process


class Watchdog:
    """The sockets under a deadline, and the thread that cuts those that passed it."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()  # entered directly: through the condition it costs more
        self._changed = threading.Condition(self._lock)
        self._guarded: dict[Deadline, tuple[float, int]] = {}
        self._wakes_at = float("inf")
        self._thread: threading.Thread | None = None

    def guard(self, descriptor: int, seconds: float) -> "Deadline":
        """Cut this socket if the block takes longer."""
        return Deadline(self, descriptor, seconds)

    def release(self, ticket: "Deadline") -> None:
        with self._lock:  # the descriptor may belong to another connection as soon as this returns
            self._guarded.pop(ticket, None)

    def register(self, ticket: "Deadline", deadline: float, descriptor: int) -> None:
        with self._lock:
            self._guarded[ticket] = (deadline, descriptor)
            if self._thread is None:
                self._thread = start_for_process("watchdog", self._watch)
            elif deadline < self._wakes_at:
                self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = monotonic()
                for ticket, (deadline, descriptor) in list(self._guarded.items()):
                    if deadline <= now:
                        del self._guarded[ticket]
                        ticket.has_fired = True
                        _shut(descriptor)
                self._wakes_at = min((deadline for deadline, _ in self._guarded.values()), default=float("inf"))
                self._changed.wait(None if self._wakes_at == float("inf") else self._wakes_at - now)


class Deadline:
    """One block under a deadline. A class, because entering a generator costs three times as much."""

    __slots__ = ("descriptor", "has_fired", "seconds", "watchdog")

    def __init__(self, watchdog: Watchdog, descriptor: int, seconds: float) -> None:
        self.watchdog, self.descriptor, self.seconds = watchdog, descriptor, seconds
        self.has_fired = False  # also after the answer had arrived, if the process itself stood still

    def __enter__(self) -> "Deadline":
        self.watchdog.register(self, monotonic() + self.seconds, self.descriptor)
        return self

    def __exit__(self, *raised: object) -> None:
        self.watchdog.release(self)


def _shut(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.shutdown(socket.SHUT_RDWR)


WATCHDOG: Final = Watchdog()
os.register_at_fork(after_in_child=WATCHDOG._reset)
