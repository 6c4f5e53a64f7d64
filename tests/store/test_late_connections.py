"""A connection that arrives after the wait for it has ended is closed, or returned to its pool."""

from concurrent.futures import Future
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction

from django_idempotency.store import dialects, limits
from django_idempotency.store.connecting import _deliver
from tests.kit.databases import another_alias, kill

pytestmark = pytest.mark.vendor


class Raw:
    """The driver's side of a connection."""

    def __init__(self, pool: Any = None) -> None:
        self.closed = False
        if pool is not None:
            self._pool = pool

    def close(self) -> None:
        self.closed = True


class Pool:
    """Keeps what is returned to it."""

    def __init__(self) -> None:
        self.returned: list[Raw] = []

    def putconn(self, raw: Raw) -> None:
        self.returned.append(raw)


def deliver_late(raw: Raw) -> None:
    future: Future[Any] = Future()
    assert future.cancel()
    _deliver(lambda: raw, future)


def test_a_late_connection_is_closed() -> None:
    raw = Raw()
    deliver_late(raw)
    assert raw.closed


def test_a_late_connection_of_a_pool_is_returned() -> None:
    pool = Pool()
    raw = Raw(pool)
    deliver_late(raw)
    assert (pool.returned, raw.closed) == ([raw], False)


class Fired:
    """A guard that has cut its socket."""

    has_fired = True

    def __enter__(self) -> "Fired":
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing to release."""


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has no server")
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_was_cut_while_it_was_checked_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.ensure_connection()
    wrapper = connections["default"]
    monkeypatch.setattr(wrapper, "health_check_enabled", True)
    monkeypatch.setattr(wrapper, "health_check_done", False)
    before, bounds, real = connection.connection, [Fired()], limits._bound
    monkeypatch.setattr(limits, "_bound", lambda *given: bounds.pop() if bounds else real(*given))
    with limits.limited("default", 5), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert connection.connection is not before


@pytest.mark.direct
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has no server")
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_django_checks_once_a_request_is_replaced_if_its_session_has_ended() -> None:
    with another_alias("checked", CONN_HEALTH_CHECKS=True, CONN_MAX_AGE=None) as alias:
        connections[alias].ensure_connection()
        connections[alias].close_if_unusable_or_obsolete()  # as at the beginning of a request
        before = connections[alias].connection
        kill(before.info.backend_pid if connection.vendor == "postgresql" else before.thread_id())
        with limits.limited(alias, 5), connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
        assert connections[alias].connection is not before


@pytest.mark.django_db(transaction=True)
def test_a_cut_connection_leaves_an_error_inside_a_transaction_as_it_is() -> None:
    limit = limits.limited("default", 5)
    with transaction.atomic():
        before = connection.connection
        limit._drop_cut(ValueError("of the project"))
        assert connection.connection is before


def test_an_error_of_mysql_loses_the_value_that_it_repeats() -> None:
    error = DatabaseError(1366, "Incorrect integer value: 'a secret' for column 'key'")
    dialects._remove_values(error)
    assert error.args == (1366, "Incorrect integer value: '...'")
