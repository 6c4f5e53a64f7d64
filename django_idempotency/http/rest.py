"""`@idempotent` on functions with `@api_view`, and on methods of Django REST framework's views.

Imported only where a decorated view is one of Django REST framework's.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from django_idempotency.conf import Arguments
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.exchange import gate
from django_idempotency.http.private_names import DJANGO_REQUEST, is_made_by_api_view, rest_class
from django_idempotency.http.run import run
from django_idempotency.http.urlconf import POLICY_MARK
from django_idempotency.rest_framework import IdempotentMixin, RestExchange


def protect_api_view(view: Any, arguments: Arguments) -> Any:
    """Protect a function decorated with `@api_view`. The class behind it is its own, so a subclass may replace it."""
    cls: Any = rest_class(view)
    if not is_made_by_api_view(cls):
        raise Misplaced(
            f"@idempotent cannot protect {cls.__name__}.as_view(): write `class {cls.__name__}(IdempotentMixin, …)` "
            "and put the policy into its `idempotency`."
        )
    protected: Any = type(
        cls.__name__, (IdempotentMixin, cls), {"idempotency": arguments, "__module__": cls.__module__}
    )
    protected.__qualname__ = cls.__qualname__
    made = update_wrapper(protected.as_view(), view, updated=())
    setattr(made, POLICY_MARK, arguments)
    return made


def run_method(request: Any, owner: Any, arguments: Arguments, handler: Callable[[], Any]) -> Any:
    """Run a decorated method of a view, or a function decorated below `@api_view`. Permissions are checked by now."""
    if isinstance(owner, IdempotentMixin):
        if not owner._handler_is_decorated:
            raise _not_the_handler(owner, handler)
        return handler()
    if not is_made_by_api_view(type(owner)):
        name = type(owner).__name__
        raise Misplaced(f"@idempotent on a method of {name} needs the mixin: write `class {name}(IdempotentMixin, …)`.")
    policy = gate(getattr(request, DJANGO_REQUEST), arguments)
    return handler() if policy is None else run(RestExchange(owner, policy, handler, request))


def _not_the_handler(owner: Any, handler: Any) -> Misplaced:
    name = f"{type(owner).__name__}.{handler.func.__name__}"
    return Misplaced(
        f"{name} is not what answers {owner.request.method}, so @idempotent has no effect there: "
        "decorate the method that is, or put the policy into `idempotency` of the class."
    )
