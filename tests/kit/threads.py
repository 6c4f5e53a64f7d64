"""Threads that start together, and threads with a database connection of their own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event
from time import monotonic, sleep
from typing import Any, TypeVar

from django.db import connection, connections, transaction

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


@contextmanager
def held_open(actor: Actor, work: Callable[[], Any]) -> Iterator[None]:
    """Another connection has done this and not committed it."""
    acted, go = Event(), Event()

    def hold() -> None:
        with transaction.atomic():
            work()
            acted.set()
            assert go.wait(60)
            transaction.set_rollback(True)

    held = actor.start(hold)
    try:
        assert acted.wait(60), held.exception(timeout=0)
        yield
    finally:
        go.set()
        held.result(60)


def together(crowd: Sequence[Actor], call: Callable[[int], T]) -> list[T]:
    """Every actor connects, all wait for each other, and then each makes the call with its number."""
    barrier = Barrier(len(crowd))

    def run(number: int) -> T:
        connection.ensure_connection()
        barrier.wait(60)
        return call(number)

    return [each.result(timeout=60) for each in [actor.start(run, number) for number, actor in enumerate(crowd)]]


def again_on_deadlock(call: Callable[[], T]) -> T:
    """What the flow does around a whole transaction."""
    while True:
        try:
            return call()
        except Exception as error:
            if not limits.may_repeat(error):
                raise


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run all calls in threads that start together; results in the order of the calls."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def wait_until(question: Callable[[], T], *, within: float = 60) -> T:
    """Ask until the answer is truthy."""
    deadline = monotonic() + within
    while not (answer := question()):
        assert monotonic() < deadline, f"not within {within} s; the last answer was {answer!r}"
        sleep(0.01)
    return answer
