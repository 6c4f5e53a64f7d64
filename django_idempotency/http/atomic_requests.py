"""Whose transaction a view runs in.

Under ATOMIC_REQUESTS Django opens a transaction before a decorator sees the request, and a claim inside it would be
forgotten by a rollback. A protected view therefore opts out of every alias, and gets from here what Django would have
opened.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

F = TypeVar("F", bound=Callable[..., Any])


class EveryAlias(set[str]):
    """The opt-outs of a protected view: Django finds every alias in it, and the view's own ones are its members."""

    def __contains__(self, alias: object) -> bool:
        return True


def take_over(view: F) -> F:
    """Keep Django from opening a transaction around this view; what the view itself opted out of stays known."""
    own = getattr(view, "_non_atomic_requests", ())
    view._non_atomic_requests = EveryAlias(own)  # type: ignore[attr-defined] # as Django marks views
    return view


def taken_over(view: Any) -> bool:
    return isinstance(getattr(view, "_non_atomic_requests", None), EveryAlias)


@contextmanager
def as_django_would(request: HttpRequest, view: Any, *, but: str | None = None) -> Iterator[None]:
    """The transactions of ATOMIC_REQUESTS, one per alias, minus the view's own opt-outs and the one named."""
    own = _opted_out(request, view)
    with ExitStack() as stack:
        for alias, settings in connections.settings.items():
            if settings["ATOMIC_REQUESTS"] and alias not in own and alias != but:
                stack.enter_context(transaction.atomic(using=alias))
        yield


def _opted_out(request: HttpRequest, view: Any) -> set[str]:
    """What `non_atomic_requests` said, at the view or in the URLconf."""
    match = request.resolver_match
    callbacks = (view, None if match is None else match.func)
    return {alias for each in callbacks for alias in getattr(each, "_non_atomic_requests", ())}


class GivenUp(Exception):
    """A refusal in a transaction that can only be rolled back: it is stored in another one, as an exception's is."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


def check_given_up(response: HttpResponseBase) -> None:
    """A view may catch a database's error, or ask for a rollback, and refuse. It cannot succeed after that."""
    if not any(each.in_atomic_block and each.needs_rollback for each in connections.all(initialized_only=True)):
        return
    if response.status_code >= 400:
        raise GivenUp(response)
    raise transaction.TransactionManagementError(
        f"The view answered {response.status_code}, and one of its transactions can only be rolled back: it asked for "
        "that, or caught a database error. Put `with transaction.atomic():` around what may fail."
    )


@contextmanager
def frames() -> Iterator[None]:
    """Something for DRF to mark for rollback that is not a test case's own transaction."""
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block and connection.settings_dict["ATOMIC_REQUESTS"]:
                stack.enter_context(transaction.atomic(using=connection.alias))
        yield
