"""Other ways to the database of this run, and what its server says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection, connections, transaction

from tests.kit.threads import wait_until

T = TypeVar("T")


def elsewhere(work: Callable[[], T]) -> T:
    """Run work on a connection of its own, to its end."""
    with running("default", work) as outcome:
        return outcome.result()


@contextmanager
def running(alias: str, work: Callable[[], T]) -> Iterator[Future[T]]:
    """Work in a thread of its own, which has this alias too, with connections of its own."""
    wrapper = connections[alias].copy()

    def run_and_close() -> T:
        connections[alias] = wrapper
        try:
            return work()
        finally:
            wrapper.close()
            connections.close_all()

    wrapper.inc_thread_sharing()
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run_and_close)


@contextmanager
def another_alias(name: str, **changes: Any) -> Iterator[str]:
    """The same database under another name in this thread, with other settings."""
    wrapper = connection.copy(name)
    wrapper.settings_dict.update(changes)
    connections[name] = wrapper
    try:
        yield name
    finally:
        wrapper.close()
        del connections[name]


@contextmanager
def nobody_answers() -> Iterator[None]:
    """The database is not at its address, in this thread."""
    away = {"NAME": "/nowhere/db"} if connection.vendor == "sqlite" else {"HOST": "127.0.0.1", "PORT": "1"}
    with default_database(**away):
        yield


@contextmanager
def default_database(**changes: Any) -> Iterator[None]:
    """The default alias has other settings, in this thread."""
    own, other = connections["default"], connection.copy()
    other.settings_dict.update(changes)
    connections["default"] = other
    try:
        yield
    finally:
        other.close()
        connections["default"] = own


@contextmanager
def without_autocommit() -> Iterator[None]:
    """Somebody looks after the transactions himself; what is not committed in the end is rolled back."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        if not transaction.get_autocommit():
            transaction.rollback()
            transaction.set_autocommit(True)


def in_transaction() -> bool:
    """Whether the records' connection has a transaction open."""
    return connection.in_atomic_block


def somebody_waits_for_a_lock() -> bool:
    """Whether another session on this database waits for a row."""
    return count_waiting() > 0


def count_waiting() -> int:
    """How many other sessions on this database wait for a row."""
    waiting = {
        "postgresql": "FROM pg_stat_activity WHERE datname = CURRENT_DATABASE() AND wait_event_type = 'Lock'",
        "mysql": "FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id"
        " WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()",
    }
    if connection.vendor == "mysql":
        time.sleep(0.15)  # it shows what it showed before to whoever asks again within a tenth of a second
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) {waiting[connection.vendor]}")
        return int(cursor.fetchone()[0])


def backend() -> int:
    """The number by which the server knows this thread's connection."""
    connection.ensure_connection()
    text = "SELECT pg_backend_pid()" if connection.vendor == "postgresql" else "SELECT CONNECTION_ID()"
    with connection.cursor() as cursor:
        cursor.execute(text)
        return int(cursor.fetchone()[0])


def is_waiting(number: int) -> bool:
    """Whether the server is waiting for a lock on behalf of another connection's statement."""
    return _has_session(
        number, {"postgresql": "AND wait_event_type = 'Lock'", "mysql": "AND info LIKE '%%idempotency_key%%'"}
    )


def sessions() -> int:
    """How many connections to this database the server has, those included whose client was cut off."""
    text = {
        "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = CURRENT_DATABASE()"
        " AND backend_type = 'client backend'",
        "mysql": "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()",
        "sqlite": "SELECT 1",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(text)
        return int(cursor.fetchone()[0])


def kill(number: int) -> None:
    """End another connection's session, as a restart or an administrator would, and wait until it has ended."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [number])
            assert cursor.fetchone() == (True,)
            return
        cursor.execute(f"KILL {number}")
    wait_until(lambda: is_gone(number))


def is_gone(number: int) -> bool:
    """Whether another connection's session has ended."""
    return not _has_session(number, {"postgresql": "", "mysql": ""})


def _has_session(number: int, condition: dict[str, str]) -> bool:
    table = {
        "postgresql": "pg_stat_activity WHERE pid",
        "mysql": "information_schema.processlist WHERE id",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {table} = %s {condition[connection.vendor]}", [number])
        return cursor.fetchone() is not None
