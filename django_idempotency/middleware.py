"""Protection for a whole project of plain Django views. DRF's views are left to the mixin.

Goes last in MIDDLEWARE, so that everything that may refuse a request comes before it. `IDEMPOTENCY["REQUIRED"]` decides
whether a POST without a key is refused; `@exempt` leaves a view alone. A protected view runs inside `process_view`, so
the `process_exception` of other middleware does not see what it raises.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from django_idempotency.conf import Arguments
from django_idempotency.decorators import idempotent
from django_idempotency.http.context import NONE, attach
from django_idempotency.http.exchange import MARK, covers
from django_idempotency.http.urlconf import Endpoint, layers

__all__ = [
    "IdempotencyMiddleware",
]

_FROM_SETTINGS: Final = Arguments({})


def _leaves_alone(view: Any, method: str) -> bool:
    try:
        return _decides_itself(view, method)
    except TypeError:  # a view that has no hash
        return _decides_itself.__wrapped__(view, method)


@lru_cache(maxsize=1024)
def _decides_itself(view: Any, method: str) -> bool:
    """Decorated, exempt or DRF's, at whatever depth: around DRF a repeat would be answered before authentication."""
    endpoint = Endpoint("", view)
    handler = getattr(endpoint.view, method.lower(), None)
    found = (*endpoint.layers, *layers(handler))
    return endpoint.is_rest or any(MARK in getattr(each, "__dict__", {}) for each in found)


class IdempotencyMiddleware(MiddlewareMixin):
    """Decorates every view with `@idempotent` that is not decorated, exempt or DRF's."""

    def process_view(
        self, request: HttpRequest, view: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> HttpResponseBase | None:
        attach(request, NONE)
        method, policy = request.method or "", _FROM_SETTINGS.policy()
        # In this order: to look for a key in a form reads the body, which others may want to do themselves.
        if method not in policy.methods or _leaves_alone(view, method) or not covers(request, policy):
            return None
        protected = idempotent(view)
        run = async_to_sync(protected) if iscoroutinefunction(protected) else protected
        response: HttpResponseBase = run(request, *args, **kwargs)
        return response
