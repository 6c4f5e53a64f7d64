"""Threads with a database connection of their own, told by a test what to do and when."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from time import monotonic, sleep
from typing import Any, TypeVar

from django.db import connection, connections

from django_idempotency.store import limits

T = TypeVar("T")


class Actor:
    """One thread, one connection, one thing at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def start(self, call: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
        return self._thread.submit(call, *arguments, **named)

    def do(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return self.start(call, *arguments, **named).result(60)

    def leave(self) -> None:
        self.do(connections.close_all)
        self._thread.shutdown()


@contextmanager
def actors(count: int) -> Iterator[list[Actor]]:
    """Their connections are closed at the end, so that the test database can be dropped."""
    crowd = [Actor() for _ in range(count)]
    try:
        yield crowd
    finally:
        for each in crowd:
            each.leave()


def together(crowd: Sequence[Actor], call: Callable[[int], T]) -> list[T]:
    """Every actor connects, all wait for each other, and then each makes the call with its number."""
    barrier = Barrier(len(crowd))

    def run(number: int) -> T:
        connection.ensure_connection()
        barrier.wait(60)
        return call(number)

    return [each.result(timeout=60) for each in [actor.start(run, number) for number, actor in enumerate(crowd)]]


def until(question: Callable[[], T], within: float = 60) -> T:
    """Ask until the answer is truthy."""
    deadline = monotonic() + within
    while not (answer := question()):
        assert monotonic() < deadline, f"not within {within} s; the last answer was {answer!r}"
        sleep(0.001)
    return answer


def backend() -> int:
    """The number by which the server knows this thread's connection."""
    connection.ensure_connection()
    text = "SELECT pg_backend_pid()" if connection.vendor == "postgresql" else "SELECT CONNECTION_ID()"
    with connection.cursor() as cursor:
        cursor.execute(text)
        return int(cursor.fetchone()[0])


def is_waiting(number: int) -> bool:
    """Whether the server is waiting for a lock on behalf of another connection's statement."""
    text = {
        "postgresql": "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'",
        "mysql": "SELECT 1 FROM information_schema.processlist WHERE id = %s AND info LIKE '%%idempotency_key%%'",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(text, [number])
        return cursor.fetchone() is not None


def sessions() -> int:
    """How many connections to this database the server has, those included whose client was cut off."""
    text = {
        "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = CURRENT_DATABASE()",
        "mysql": "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()",
        "sqlite": "SELECT 1",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(text)
        return int(cursor.fetchone()[0])


def again_on_deadlock(call: Callable[[], T]) -> T:
    """What the flow does around a whole transaction."""
    while True:
        try:
            return call()
        except Exception as error:
            if not limits.may_repeat(error):
                raise
