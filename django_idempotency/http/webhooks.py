"""The 503 by which a webhook view asks its provider to deliver the event again."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse

from django_idempotency.conf import conf
from django_idempotency.exceptions import LostFence, NotExecuted, OutcomeUnknown, StillRunning, StoreUnavailable
from django_idempotency.http.atomic_requests import open_atomic_requests, opt_out_of_atomic_requests
from django_idempotency.signals import logger

# The next delivery may succeed. Django raises the last two for lost connections, deadlocks and locks not granted.
TEMPORARY: Final = (
    StillRunning, NotExecuted, StoreUnavailable, OutcomeUnknown, LostFence, OperationalError, InterfaceError,
)  # fmt: skip


def guard(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the view with a 503 for temporary errors. Everything that it wrote under ATOMIC_REQUESTS rolls back."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            with open_atomic_requests(request, guarded):
                return view(request, *args, **kwargs)
        except TEMPORARY as error:
            return _ask_again(error)

    return opt_out_of_atomic_requests(guarded)


def guard_async(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the async view with a 503 for temporary errors."""

    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return await view(*args, **kwargs)
        except TEMPORARY as error:
            return _ask_again(error)

    return guarded


def _ask_again(error: Exception) -> HttpResponse:
    expected = isinstance(error, StillRunning | NotExecuted)
    logger.log(
        logging.INFO if expected else logging.ERROR,
        "A webhook could not be processed, and is to be delivered again: %s",
        type(error).__name__,
        exc_info=None if expected else error,
    )
    hint = round(conf.RETRY_HINT.total_seconds())
    wait = max(1, hint, error.retry_after if isinstance(error, StillRunning) else 0)
    headers = {"Retry-After": str(wait), "Cache-Control": "no-store"}
    return HttpResponse("Deliver this event again later.", "text/plain", 503, headers=headers)
