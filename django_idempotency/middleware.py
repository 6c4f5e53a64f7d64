"""Protection for a whole project of plain Django views. Views of Django REST framework need the mixin.

Put it last in MIDDLEWARE, after every middleware that may reject a request. `IDEMPOTENCY["REQUIRED"]` decides whether a
POST without a key is rejected, and `IDEMPOTENCY["MODE"]` whether the views are leased or atomic. `@exempt` excludes a
view. A protected view runs inside `process_view`, so its exceptions do not reach the `process_exception` of other
middleware.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from django_idempotency.conf import Arguments
from django_idempotency.decorators import protect
from django_idempotency.http.context import NONE, attach
from django_idempotency.http.exchange import gate
from django_idempotency.http.urlconf import Endpoint

__all__ = ["IdempotencyMiddleware"]

_FROM_SETTINGS: Final = Arguments({})


def _is_left_alone(view: Any, method: str) -> bool:
    try:
        return _has_its_own_policy(view, method)
    except TypeError:  # the view is not hashable
        return _has_its_own_policy.__wrapped__(view, method)


@lru_cache(maxsize=1024)
def _has_its_own_policy(view: Any, method: str) -> bool:
    """True if the middleware leaves the view alone.

    Around Django REST framework's views a retry would be answered before they authenticate the caller.
    """
    return Endpoint("", view).has_own_policy(method)


class IdempotencyMiddleware(MiddlewareMixin):
    """Protect every view, except views that are decorated or exempt and those of Django REST framework."""

    def process_view(
        self, request: HttpRequest, view: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> HttpResponseBase | None:
        attach(request, NONE)
        method = request.method or ""
        # The gate comes last: to look for a key in a form it reads the body, which an exempt view may want to read.
        if method not in _FROM_SETTINGS.policy().methods or _is_left_alone(view, method):
            return None
        if gate(request, _FROM_SETTINGS) is None:
            return None
        protected = protect(_FROM_SETTINGS, view)
        run = async_to_sync(protected) if iscoroutinefunction(protected) else protected
        response: HttpResponseBase = run(request, *args, **kwargs)
        return response
