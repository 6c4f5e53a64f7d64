"""`@idempotent` on functions with `@api_view`, and on methods of Django REST framework's views.

Imported only where a decorated view is one of Django REST framework's.
"""

from collections.abc import Callable
from functools import cache, update_wrapper
from itertools import islice
from typing import Any

from asgiref.sync import iscoroutinefunction

from django_idempotency.conf import Arguments
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.exchange import gate
from django_idempotency.http.private_names import (
    DJANGO_REQUEST,
    NON_ATOMIC_REQUESTS,
    is_made_by_api_view,
    rest_actions,
    rest_class,
)
from django_idempotency.http.run import run
from django_idempotency.http.urlconf import Endpoint
from django_idempotency.http.wrapping import POLICY_MARK, layers
from django_idempotency.rest_framework import IdempotentMixin, RestExchange


def protect_api_view(view: Any, arguments: Arguments) -> Any:
    """Protect a function decorated with `@api_view`. The class behind it is its own, so a subclass may replace it."""
    cls: Any = rest_class(view)
    if not is_made_by_api_view(cls):
        raise Misplaced(
            f"@idempotent cannot protect {cls.__name__}.as_view(): write `class {cls.__name__}(IdempotentMixin, …)` "
            "and put the policy into its `idempotency`."
        )
    if _codes(view) != _codes(cls.as_view()):
        raise Misplaced(
            f"@idempotent protects the class behind {view.__name__}, so a decorator between the two would not run: put "
            "@idempotent directly above @api_view, and that decorator above @idempotent."
        )
    made = update_wrapper(_protected_class(cls, arguments).as_view(), view, updated=())
    setattr(made, POLICY_MARK, arguments)
    return made


def protect_route(endpoint: Endpoint, arguments: Arguments) -> Any:
    """Return the callback of a route with the mixin before its class."""
    cls: Any = endpoint.view
    if iscoroutinefunction(endpoint.callback) or _codes(endpoint.callback) != _codes(_as_view(cls, endpoint)):
        raise Misplaced(
            f"/{endpoint.route}: {cls.__name__} cannot be protected from outside, because it is async or a decorator "
            f"is around its callback: write `class {cls.__name__}(IdempotentMixin, …)`, put @idempotent directly above "
            "@api_view, or mark the view with @exempt."
        )
    made = _as_view(_protected_class(cls, arguments), endpoint)
    for name, value in vars(endpoint.callback).items():  # what decorators set on it
        vars(made).setdefault(name, value)
    vars(made)[NON_ATOMIC_REQUESTS].update(getattr(endpoint.callback, NON_ATOMIC_REQUESTS, ()))
    return made


def _as_view(cls: Any, endpoint: Endpoint) -> Any:
    actions = filter(None, map(rest_actions, endpoint.layers))  # of a view set
    return cls.as_view(*islice(actions, 1), **endpoint.arguments)


def _codes(callback: Any) -> list[Any]:
    """Return what makes two callbacks alike: the same functions around each other."""
    return [getattr(layer, "__code__", layer) for layer in layers(callback)]


@cache
def _protected_class(cls: type, arguments: Arguments) -> Any:
    """Return a subclass with the mixin that looks like the class itself."""
    like = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (IdempotentMixin, cls), {"idempotency": arguments, **like})


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
