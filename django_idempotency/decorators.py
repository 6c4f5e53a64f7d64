"""`@idempotent`, for functions, async functions and class-based views::

    @idempotent(mode="atomic")
    def transfer(request): ...

    @idempotent(mode="leased", retention=timedelta(days=7))
    def pay(request): ...

    @method_decorator(idempotent(operation="orders.create", mode="atomic"), name="dispatch")
    class CreateOrder(View): ...

If the view writes to this database only, make it atomic: an exception rolls everything back and frees the key. If it
calls anything outside this database, make it leased: an unexpected exception leaves an unknown outcome. The setting
MODE is the mode of views that set none.

Views of Django REST framework need `IdempotentMixin`. Put `@idempotent` above `@api_view`; on a method or an `@action`
of a view with the mixin, it sets the policy of that action.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Final, TypeVar, overload

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.http import HttpRequest

from django_idempotency.conf import Arguments
from django_idempotency.core.policy import Mode
from django_idempotency.core.validation import FUNCTION, is_coroutine_function, require_type
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.context import IdempotentRequest
from django_idempotency.http.exchange import Exchange, gate, run_unprotected
from django_idempotency.http.private_names import is_method_decorators_own, rest_class, view_of
from django_idempotency.http.run import arun, run
from django_idempotency.http.webhooks import guard, guard_async
from django_idempotency.http.wrapping import POLICY_MARK, mark_policy

__all__ = ["IdempotentRequest", "deliver_again", "exempt", "idempotent"]

F = TypeVar("F", bound=Callable[..., Any])
_AWAITED: Final = ("scope", "authorize")  # the arguments that may be coroutine functions around an async view
_NONE: Final[Mapping[str, Any]] = {}


@overload
def idempotent(view: F, /) -> F: ...
@overload
def idempotent(view: None = None, /, **arguments: Any) -> Callable[[F], F]: ...
def idempotent(view: Any = None, /, **arguments: Any) -> Any:
    """Make retries of this view safe. The arguments are those of `Policy`; the settings supply the others.

    `scope` and `authorize` may be coroutine functions if the view is async.
    """
    awaited = {name: arguments[name] for name in _AWAITED if is_coroutine_function(arguments.get(name))}
    chosen = Arguments({**arguments, **{name: _wait_for(function) for name, function in awaited.items()}})
    decorate = partial(protect, chosen, awaited=awaited)
    return decorate if view is None else decorate(view)


def exempt(view: F) -> F:
    """Exclude this view, method or action from the protection of its class, of `protect_all` or of the middleware."""
    setattr(view, POLICY_MARK, None)
    return view


def deliver_again(view: F) -> F:
    """Make a webhook view return 503 with Retry-After while it cannot do its work, so that the provider delivers again.

    It cannot while the database does not respond, or while the record of the event or of its request is in use.
    """
    guarded: Any = guard_async(view) if _is_async(view) else guard(view)
    return guarded  # type: ignore[no-any-return]


def _wait_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sync function that waits for a coroutine function.

    The layer asks it in a thread, so the coroutine runs in the event loop of the request.
    """

    async def call(*arguments: Any) -> Any:
        return await function(*arguments)

    return async_to_sync(call)


def protect(arguments: Arguments, view: Any, *, awaited: Mapping[str, Any] = _NONE) -> Any:
    """Return the protected view. `awaited` has the coroutine functions among the arguments."""
    if awaited and not _is_async(view) and not is_method_decorators_own(view):
        for name, function in awaited.items():
            require_type(name, function, FUNCTION)
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
