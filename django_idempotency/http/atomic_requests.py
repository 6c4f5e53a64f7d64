"""Django's ATOMIC_REQUESTS around a protected view.

Django opens its transactions before a decorator sees the request, so a rollback would delete a claim made inside them.
A protected view therefore opts out for every database alias, and the transactions that Django would have opened are
opened here, after the claim.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar

from django.db import Error, connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.http.private_names import NON_ATOMIC_REQUESTS
from django_idempotency.store.limits import CLOSED_INSIDE

F = TypeVar("F", bound=Callable[..., Any])


class EveryAlias(set[str]):
    """The opt-outs of a protected view: Django finds every alias in it, and its members are the view's own opt-outs."""

    def __contains__(self, alias: object) -> bool:
        return True


def opt_out_of_atomic_requests(view: F) -> F:
    """Keep Django from opening a transaction around this view. The view's own opt-outs are remembered."""
    own: set[str] = getattr(view, NON_ATOMIC_REQUESTS, set())
    setattr(view, NON_ATOMIC_REQUESTS, EveryAlias(own))
    return view


def open_atomic_requests(
    request: HttpRequest, view: Any, *, except_for: str | None = None
) -> AbstractContextManager[object]:
    """Open the transactions of ATOMIC_REQUESTS, one per alias, for a block.

    Left out are the aliases that the view opted out of itself, and `except_for`.
    """
    switched_on = [alias for alias, settings in connections.settings.items() if settings["ATOMIC_REQUESTS"]]
    if not switched_on:
        return nullcontext()
    opted_out = _opted_out(request, view)
    return _open(alias for alias in switched_on if alias not in opted_out and alias != except_for)


@contextmanager
def _open(aliases: Iterable[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for alias in aliases:
            stack.enter_context(transaction.atomic(using=alias))
        yield


@contextmanager
def open_in_time(transactions: AbstractContextManager[object]) -> Iterator[None]:
    """Raise StoreUnavailable if a transaction does not open."""
    with ExitStack() as stack:
        try:
            stack.enter_context(transactions)
        except Error as error:
            raise StoreUnavailable from error
        yield


def _opted_out(request: HttpRequest, view: Any) -> set[str]:
    """Return the aliases named by `non_atomic_requests`, on the view or in the URLconf."""
    match = request.resolver_match
    callbacks = (view, None if match is None else match.func)
    return {alias for each in callbacks for alias in getattr(each, NON_ATOMIC_REQUESTS, ())}


class RollbackRequired(Exception):
    """The view returned an error response in a transaction that is marked for rollback.

    The response has to be stored in a new transaction.
    """

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


def check_for_rollback(response: HttpResponseBase) -> None:
    """Raise if a transaction of the view is marked for rollback: RollbackRequired with an error response.

    A view marks it when it catches a database error, or calls `set_rollback(True)`. It cannot succeed after that.
    """
    if not any(each.in_atomic_block and each.needs_rollback for each in connections.all(initialized_only=True)):
        return
    if response.status_code >= 400:
        raise RollbackRequired(response)
    if any(each.closed_in_transaction for each in connections.all(initialized_only=True)):
        raise transaction.TransactionManagementError(CLOSED_INSIDE)
    raise transaction.TransactionManagementError(
        f"The view returned status {response.status_code}, but one of its transactions is marked for rollback: the "
        "view called set_rollback(True), or caught a database error. Put `with transaction.atomic():` around the "
        "statements that may fail."
    )


@contextmanager
def savepoints() -> Iterator[None]:
    """Open a savepoint in each transaction of ATOMIC_REQUESTS.

    Django REST framework marks the innermost block for rollback when a view raises. Without a savepoint of ours that
    could be the transaction of a test case.
    """
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block and connection.settings_dict["ATOMIC_REQUESTS"]:
                stack.enter_context(transaction.atomic(using=connection.alias))
        yield
