"""Threads that work in the same place as the code that starts them: its context variables, and its tenants."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial, wraps
from threading import Thread, Timer
from typing import Any, ParamSpec, TypeVar

import asgiref.sync
from django.db import connections

Given = ParamSpec("Given")
T = TypeVar("T")


def start(name: str, work: Callable[[], object]) -> Thread:
    """Start a thread here, and close the connections that it opened at its end."""
    thread = Thread(target=bind(_closing(work)), name=f"idempotency-{name}", daemon=True)
    thread.start()
    return thread


def start_for_process(name: str, work: Callable[[], object], delay: float = 0) -> Timer:
    """Start a thread that serves the whole process: it keeps nothing of the request that happened to need it first."""
    thread = Timer(delay, Context().run, [work])
    thread.name, thread.daemon = f"idempotency-{name}", True
    thread.start()
    return thread


def run_each(work: Callable[[Any], T], items: Iterable[Any], seconds: float | None = None) -> list[T]:
    """Call `work` with each of the items at the same time, and return the results in their order."""
    given = list(items)
    with ThreadPoolExecutor(len(given)) as pool:
        calls = [pool.submit(bind(_closing(partial(work, item)))) for item in given]
        return [call.result(seconds) for call in calls]


def bind(work: Callable[Given, T]) -> Callable[Given, T]:
    """Return `work` to be called once in another thread, where it finds the context and the tenants of this one."""
    context, tenants = copy_context(), _list_tenants()

    @wraps(work)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> T:
        _enter_context(context)
        _enter_tenants(tenants)
        return work(*args, **kwargs)

    return partial(Context().run, run)


def _closing(work: Callable[[], T]) -> Callable[[], T]:
    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return run


def _list_tenants() -> dict[str, Any]:
    """Return the tenant of each connection of this thread whose engine has tenants, as django-tenants' has."""
    known: list[Any] = [each for each in connections.all(initialized_only=True) if each.alias in connections.settings]
    return {each.alias: each.tenant for each in known if hasattr(each, "set_tenant")}


def _set_variables(context: Context) -> None:
    for variable, value in context.items():
        variable.set(value)


# Of asgiref's Locals, as Django's language and time zone are, a thread sees only those that asgiref itself has moved.
_enter_context: Callable[[Context], None] = getattr(asgiref.sync, "_restore_context", _set_variables)


def _enter_tenants(tenants: dict[str, Any]) -> None:
    for alias, tenant in tenants.items():
        connection: Any = connections[alias]
        connection.set_tenant(tenant)
        if connection.schema_name != tenant.schema_name:
            raise RuntimeError(f"A thread is in the schema {connection.schema_name!r}, not in {tenant.schema_name!r}.")
