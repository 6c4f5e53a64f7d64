"""A server that hangs is cut off at the deadline, and nobody else is."""

import os
import socket
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

import pytest

from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import claims, limits
from django_idempotency.store.watchdog import WATCHDOG, Watchdog
from tests.kit.cable import Cable
from tests.kit.rows import NAMESPACE, a_call
from tests.store.silence import silenceable

pytestmark = pytest.mark.vendor

Pair: TypeAlias = tuple[socket.socket, socket.socket]
LONG = 60.0
LATE = 2.0  # how much a busy machine may add to a deadline
ALIAS = "silenceable"


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    pairs = [socket.socketpair() for _ in range(3)]
    yield pairs
    for one, other in pairs:
        one.close()
        other.close()


def is_cut(end: socket.socket) -> bool:
    """Wait until it is."""
    end.settimeout(LONG / 2)
    return end.recv(1) == b""


def is_alive(pair: Pair) -> bool:
    pair[1].sendall(b"x")
    return pair[0].recv(1) == b"x"


def test_a_socket_is_cut_at_its_deadline(pairs: list[Pair]) -> None:
    began = monotonic()
    with WATCHDOG.guard(pairs[0][0].fileno(), 0.05):
        assert is_cut(pairs[0][0])
    assert 0.04 < monotonic() - began < LATE
    assert is_alive(pairs[1])


def test_an_earlier_deadline_does_not_wait_for_a_later_one(pairs: list[Pair]) -> None:
    with WATCHDOG.guard(pairs[0][0].fileno(), LONG), WATCHDOG.guard(pairs[1][0].fileno(), 0.05):
        assert is_cut(pairs[1][0])
        assert is_alive(pairs[0])


@pytest.mark.parametrize(("outer", "inner"), [(0.05, LONG), (LONG, 0.05)])
def test_of_two_deadlines_of_one_socket_the_earlier_counts(pairs: list[Pair], outer: float, inner: float) -> None:
    descriptor = pairs[0][0].fileno()
    with WATCHDOG.guard(descriptor, outer), WATCHDOG.guard(descriptor, inner):
        assert is_cut(pairs[0][0])


def test_leaving_the_inner_guard_leaves_the_outer_one(pairs: list[Pair]) -> None:
    descriptor = pairs[0][0].fileno()
    with WATCHDOG.guard(descriptor, 0.1):
        with WATCHDOG.guard(descriptor, LONG):
            pass
        assert is_cut(pairs[0][0])


def test_a_call_that_was_in_time_is_never_cut(pairs: list[Pair]) -> None:
    with WATCHDOG.guard(pairs[0][0].fileno(), 0.05):
        assert is_alive(pairs[0])
    pass_time(pairs[1], 0.1)
    assert is_alive(pairs[0])


def test_a_descriptor_that_was_given_to_somebody_else_is_safe(pairs: list[Pair]) -> None:
    descriptor = pairs[0][0].fileno()
    with WATCHDOG.guard(descriptor, 0.05):
        pairs[0][0].close()
    newcomers = socket.socketpair()
    with newcomers[0], newcomers[1]:
        assert descriptor in (newcomers[0].fileno(), newcomers[1].fileno())
        pass_time(pairs[1], 0.1)
        assert is_alive(newcomers)


def pass_time(pair: Pair, seconds: float) -> None:
    """Until the watchdog itself has seen a later deadline pass."""
    with WATCHDOG.guard(pair[0].fileno(), seconds):
        assert is_cut(pair[0])


def test_a_descriptor_that_is_no_socket_does_not_stop_the_watch(pairs: list[Pair]) -> None:
    watchdog = Watchdog()
    with open(os.devnull) as file, watchdog.guard(file.fileno(), 0.01), watchdog.guard(pairs[0][0].fileno(), 0.05):
        assert is_cut(pairs[0][0])
    with watchdog.guard(99_999, 0.01), watchdog.guard(pairs[1][0].fileno(), 0.05):
        assert is_cut(pairs[1][0])


def test_nothing_stays_registered(pairs: list[Pair]) -> None:
    with ExitStack() as stack:
        for one, _ in pairs:
            stack.enter_context(WATCHDOG.guard(one.fileno(), LONG))
        assert len(WATCHDOG._guarded) == 3
    assert not WATCHDOG._guarded


def test_one_thread_watches_for_all() -> None:
    watchdog = Watchdog()

    def be_cut(number: int) -> object:
        one, other = socket.socketpair()
        with one, other, watchdog.guard(one.fileno(), 0.05):
            assert is_cut(one)
        return watchdog._thread

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(be_cut, range(8)))) == 1


def test_a_child_process_has_a_watch_of_its_own(pairs: list[Pair]) -> None:
    """The parent's thread does not exist there, and its deadlines are not the child's."""
    with WATCHDOG.guard(pairs[0][0].fileno(), LONG):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the child does nothing but this
            child = os.fork()
        if child == 0:
            inherited = len(WATCHDOG._guarded)
            with WATCHDOG.guard(pairs[1][0].fileno(), 0.05):
                os._exit(0 if is_cut(pairs[1][0]) and not inherited else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(WATCHDOG._guarded) == 1


# With a database


@pytest.fixture
def way(vendor: str) -> Iterator[Cable]:
    if vendor == "sqlite":
        pytest.skip("SQLite has no server that could hang")
    with silenceable(ALIAS) as way:
        yield way


@pytest.mark.django_db(transaction=True)
def test_a_server_that_hangs_is_store_unavailable_within_the_limit(way: Cable) -> None:
    def claim(left: float) -> bool:
        return claims.insert_claim(a_call(), uuid4(), ALIAS, left, namespace=NAMESPACE) is None

    assert limits.repeated(claim, ALIAS, 10) is True
    way.silence()
    began = monotonic()
    with pytest.raises(StoreUnavailable):
        limits.repeated(claim, ALIAS, 0.5)
    assert 0.4 < monotonic() - began < 0.5 + LATE
    assert not WATCHDOG._guarded
    way.repair()
    assert limits.repeated(claim, ALIAS, 10) is False, "it works again, and finds the record"
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_whatever_runs_under_a_limit_is_cut(way: Cable) -> None:
    assert IdempotencyKey.objects.using(ALIAS).count() == 0
    way.silence()
    with pytest.raises(StoreUnavailable), limits.limited(ALIAS, 0.3):
        IdempotencyKey.objects.using(ALIAS).count()
    assert not WATCHDOG._guarded
