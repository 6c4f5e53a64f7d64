"""Gets a connection within a limit, whatever gives it: a driver, Django's pool, or a pooler in front of the server."""

from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from contextlib import ExitStack, suppress
from functools import partial
from math import ceil
from time import monotonic
from typing import Any, Final

from django.db import Error, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.store.dialects import DIALECTS
from django_idempotency.store.threads import start
from django_idempotency.store.watchdog import WATCHDOG

_TOO_LATE: Final = "The database did not answer within the limit."


def open_connection(connection: BaseDatabaseWrapper, seconds: float) -> None:
    """Let Django connect, within a limit.

    Before there is a connection the watchdog has no socket to cut, so another thread waits for it. Django then sets the
    session up, which a full pooler does not answer: the watchdog covers that.
    """
    if seconds <= 0:
        raise OperationalError(_TOO_LATE)
    if not DIALECTS[connection.vendor].has_server:
        connection.ensure_connection()
        return
    wrapper: Any = connection
    deadline, configured = monotonic() + seconds, wrapper.settings_dict
    driver_limits = _driver_limits(wrapper, ceil(seconds))
    give, pool = wrapper.get_new_connection, getattr(wrapper, "pool", None)  # made with the project's own settings
    with ExitStack() as guards:

        def give_in_time(parameters: dict[str, Any]) -> Any:
            raw = _wait(partial(give, parameters), deadline - monotonic())
            guards.enter_context(WATCHDOG.guard(descriptor(raw), max(deadline - monotonic(), 0.01)))
            return raw

        wrapper.settings_dict = {**configured, "OPTIONS": {**driver_limits, **configured["OPTIONS"]}}
        wrapper.get_new_connection = give_in_time
        if pool is not None:
            wrapper._connection_pools = {wrapper.alias: _HurriedPool(pool, seconds)}
        try:
            wrapper.ensure_connection()
        except Error:
            discard(connection)  # Django keeps one that it could not set up
            raise
        finally:
            wrapper.settings_dict = configured
            for name in ("get_new_connection", "_connection_pools"):
                vars(wrapper).pop(name, None)
    if "read_timeout" in driver_limits:
        wrapper.connection._read_timeout = configured["OPTIONS"].get("read_timeout")


def discard(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that does not work. A pool would give it to another thread if it were only returned."""
    if connection.connection is not None:
        with suppress(Exception):
            connection.connection.close()
    close(connection)


def close(connection: BaseDatabaseWrapper) -> None:
    """Close a connection, or give it back to its pool."""
    with suppress(Error):  # PyMySQL refuses to close twice
        connection.close()


def descriptor(raw: Any) -> int:
    """Return the socket under a driver's connection; PyMySQL keeps its own to itself."""
    return int(raw.fileno() if hasattr(raw, "fileno") else raw._sock.fileno())


class _HurriedPool:
    """Django's pool, which does not wait for longer than the limit."""

    def __init__(self, pool: Any, seconds: float) -> None:
        self._pool, self._seconds = pool, seconds

    def open(self) -> None:
        self._pool.open()

    def getconn(self) -> Any:
        return self._pool.getconn(self._seconds)


def _wait(give: Callable[[], Any], seconds: float) -> Any:
    """Return what `give` returns if it does so in time; otherwise the wait ends without it."""
    future: Future[Any] = Future()
    start("connect", partial(_deliver, give, future))
    try:
        return future.result(max(seconds, 0.01))
    except TimeoutError:
        if future.cancel():
            raise OperationalError(_TOO_LATE) from None
        return future.result()  # pragma: no cover - a race: it came at this moment


def _deliver(give: Callable[[], Any], future: "Future[Any]") -> None:
    try:
        raw = give()
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
        return
    if future.set_running_or_notify_cancel():
        future.set_result(raw)
        return
    with suppress(Exception):
        pool = getattr(raw, "_pool", None)
        raw.close() if pool is None else pool.putconn(raw)


def _driver_limits(connection: Any, seconds: int) -> dict[str, int]:
    """In whole seconds. PyMySQL's `connect_timeout` ends before the server has said a word."""
    waits_to_read = connection.Database.__name__ == "pymysql"
    return {"connect_timeout": seconds} | ({"read_timeout": seconds} if waits_to_read else {})
