"""`@idempotent`, for functions, async functions and class-based views.

    @idempotent
    def create(request): ...

    @idempotent(mode="atomic", retention=timedelta(days=7))
    def transfer(request): ...

    @method_decorator(idempotent(operation="orders.create"), name="dispatch")
    class CreateOrder(View): ...

For DRF's views there is `IdempotentMixin`; `@idempotent` goes above `@api_view`, and on a method or an `@action` of a
view with the mixin it sets that action's policy.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, overload

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from django_idempotency.conf import Arguments
from django_idempotency.core.policy import Mode
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.context import IdempotentRequest
from django_idempotency.http.exchange import Exchange, gate, run_unprotected
from django_idempotency.http.private_names import rest_class, view_of
from django_idempotency.http.run import arun, run
from django_idempotency.http.urlconf import POLICY_MARK, mark_policy
from django_idempotency.http.webhooks import guard, guard_async

__all__ = ["IdempotentRequest", "deliver_again", "exempt", "idempotent"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def idempotent(view: F, /) -> F: ...
@overload
def idempotent(view: None = None, /, **arguments: Any) -> Callable[[F], F]: ...
def idempotent(view: Any = None, /, **arguments: Any) -> Any:
    """Make retries of this view safe. The arguments are those of `Policy`; the settings supply the others."""
    chosen = Arguments(arguments)
    return partial(protect, chosen) if view is None else protect(chosen, view)


def exempt(view: F) -> F:
    """Exclude this view, method or action from the protection of its class or of the middleware."""
    setattr(view, POLICY_MARK, None)
    return view


def deliver_again(view: F) -> F:
    """Make a webhook view answer 503 with Retry-After while it cannot do its work: the provider delivers again.

    That is while the database is away, or the record of the event or of its request is in use.
    """
    guarded: Any = guard_async(view) if _is_async(view) else guard(view)
    return guarded  # type: ignore[no-any-return]


def protect(arguments: Arguments, view: Any) -> Any:
    """Return the protected view."""
    if rest_class(view) is not None:
        from django_idempotency.http.rest import protect_api_view

        return protect_api_view(view, arguments)
    if isinstance(view, type):
        raise Misplaced(
            f"@idempotent cannot decorate the class {view.__name__}: write "
            '@method_decorator(idempotent, name="dispatch"), or add IdempotentMixin to a view of Django REST framework.'
        )
    if hasattr(_owner(view), "initialize_request"):
        name = type(_owner(view)).__name__
        raise Misplaced(
            f"@idempotent around the dispatch of {name} would run before Django REST framework's authentication: "
            f"write `class {name}(IdempotentMixin, …)`."
        )
    guarded = _guard_async(arguments, view) if _is_async(view) else _guard(arguments, view)
    mark_policy(guarded, arguments)
    return opt_out_of_atomic_requests(guarded)


def _guard(arguments: Arguments, view: Any) -> Any:
    @wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        request, owner = _request(args)
        handler = partial(view, *args, **kwargs)
        if not isinstance(request, HttpRequest):
            from django_idempotency.http.rest import run_method

            return run_method(request, owner, arguments, handler)
        policy = gate(request, arguments)
        if policy is None:
            return run_unprotected(request, guarded, handler)
        return run(Exchange(request, policy, handler, guarded))

    return guarded


def _guard_async(arguments: Arguments, view: Any) -> Any:
    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        if arguments.policy().mode is Mode.ATOMIC:
            raise Misplaced("An async view cannot be atomic: Django's transactions are synchronous. Use mode='leased'.")
        request, _ = _request(args)
        handler = partial(view, *args, **kwargs)
        policy = gate(request, arguments)
        if policy is None:
            return await handler()
        return await arun(Exchange(request, policy, handler, guarded))

    return guarded


def _request(args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the request, and the view instance if a method was decorated."""
    if args and isinstance(args[0], HttpRequest):
        return args[0], None
    if args and view_of(args[0]) is not None:  # a request of Django REST framework, below @api_view
        return args[0], view_of(args[0])
    if len(args) > 1:
        return args[1], args[0]
    raise Misplaced("@idempotent decorates views: functions that take a request, or methods of view classes.")


def _is_async(view: Any) -> bool:
    """True if this view is async. `method_decorator` passes a partial, which no longer looks async."""
    return iscoroutinefunction(_inner(view)) or bool(getattr(_owner(view), "view_is_async", False))


def _owner(view: Any) -> Any:
    """Return the view instance whose `dispatch` is decorated; None for other views."""
    inner = _inner(view)
    return getattr(inner, "__self__", None) if getattr(inner, "__name__", "") == "dispatch" else None


def _inner(view: Any) -> Any:
    return view.func if isinstance(view, partial) else view
