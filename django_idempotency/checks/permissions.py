"""Permissions, limits and CSRF checks that a view makes inside its protection.

A retry would be answered before they are made, and the response that refuses would be stored and replayed.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial, wraps
from types import FunctionType
from typing import Any, Final, NamedTuple

from django.core.checks import CheckMessage, Warning
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.module_loading import import_string

from django_idempotency.conf import middleware
from django_idempotency.core.policy import Policy
from django_idempotency.http.private_names import checks_csrf_token, method_decorators, tests_more_than_login
from django_idempotency.http.urlconf import Endpoint
from django_idempotency.http.wrapping import POLICY_MARK, is_guard, is_wrapper, layers, mark_of

# The names and statuses by which code says that it refuses a caller.
_REFUSES: Final = frozenset(
    {
        "PermissionDenied",
        "HttpResponseForbidden",
        "NotAuthenticated",
        "AuthenticationFailed",
        "handle_no_permission",
        "has_perm",
        "has_perms",
        "has_module_perms",
        "ahas_perm",
        "ahas_perms",
        "is_staff",
        "is_superuser",
        401,  # also that of a credential that was revoked
        403,
    }
)
_LIMITS: Final = frozenset({"Ratelimited", "is_ratelimited", "Throttled", 429})
_PERMISSION: Final = re.compile("permission")
_LIMITER: Final = re.compile("rate_?limit|throttl", re.IGNORECASE)


class Inside(NamedTuple):
    """A function that runs inside the protection, and the policy that protects it."""

    function: Any
    policy: Policy


def functions_inside(endpoint: Endpoint, whole_view: Policy | None = None) -> list[Inside]:
    """Return what runs inside the protection of this endpoint. With `whole_view` that is around the callback."""
    return list(_functions_inside(endpoint, whole_view))


def permission_in(found: Sequence[Inside]) -> str:
    """Return the name of what checks a permission; empty if nothing does.

    A login needs no such order: the scope of a key has one already.
    """
    return next((_name(each.function) for each in found if tests_more_than_login(each.function)), "")


def refusals_inside(endpoint: Endpoint, found: Sequence[Inside], protection: str) -> Iterator[CheckMessage]:
    """W036, W037: the project's own permissions, rate limiters and CSRF checks, inside any kind of protection."""
    own = next((_name(each.function) for each in found if _seems(each.function, _REFUSES, _PERMISSION)), "")
    if own and not permission_in(found):
        yield Warning(
            f"/{endpoint.route}: {own} seems to check a permission inside {protection}, so a retry would be answered "
            "before it is checked, and a response that denies it would be stored.",
            hint="Put @idempotent below it; on a class decorate the method that answers. Silence this warning if it "
            "asks for no more than a login.",
            id="django_idempotency.W036",
        )
    limit = _limit_in(endpoint, found)
    if limit:
        yield Warning(
            f"/{endpoint.route}: {limit} is inside {protection}, so its 403 or 429 would be stored, and a retry would "
            "get it again after the reason for it is gone.",
            hint="Put @idempotent below it, on a class for example with "
            "@method_decorator([ratelimit(…), idempotent], name='dispatch'). On a view of Django REST framework use "
            "throttle_classes. Or let `store` leave out 403 and 429.",
            id="django_idempotency.W037",
        )


def _limit_in(endpoint: Endpoint, found: Sequence[Inside]) -> str:
    """Return the name of a rate limiter or a CSRF check whose refusal would be stored; empty if there is none."""
    checks_csrf = not _csrf_was_checked(endpoint)
    for function, policy in found:
        if not policy.keeps(403) and not policy.keeps(429):
            continue
        if checks_csrf and checks_csrf_token(function):
            return "csrf_protect"
        if _seems(function, _LIMITS, _LIMITER):
            return _name(function)
    return ""


def _csrf_was_checked(endpoint: Endpoint) -> bool:
    """True if CsrfViewMiddleware looks at this view's requests: then `csrf_protect` does nothing."""
    if getattr(endpoint.callback, "csrf_exempt", False):
        return False
    installed = map(import_string, middleware())
    return any(isinstance(each, type) and issubclass(each, CsrfViewMiddleware) for each in installed)


def _seems(function: Any, says: frozenset[Any], name: re.Pattern[str]) -> bool:
    """True if a decorator, or the `dispatch` of a class, has such a name or says such a thing.

    The view itself is not meant, and neither is Django: what a view refuses is its response.
    """
    if not isinstance(function, FunctionType) or function.__globals__["__name__"].startswith("django."):
        return False
    code = function.__code__
    if code.co_name == "dispatch":
        return not says.isdisjoint(code.co_names)
    if not is_wrapper(function):
        return False
    return bool(name.search(_name(function))) or not says.isdisjoint((*code.co_names, *code.co_consts))


def _name(function: FunctionType) -> str:
    """Return the name of a decorator, or of a class with its method."""
    name = function.__code__.co_qualname.partition(".<locals>")[0]
    return "permission_required or user_passes_test" if name == "user_passes_test" else name


def _functions_inside(endpoint: Endpoint, whole_view: Policy | None) -> Iterator[Inside]:
    yield from _within(endpoint.callback, whole_view)
    if endpoint.view is None:
        return
    for name, arguments in endpoint.protected_methods():  # as a whole, whatever decorates them
        yield from _within(getattr(endpoint.view, name), arguments.policy())
    if endpoint.has_mixin:
        return
    around = [mark.policy() for mark in endpoint.around if "dispatch" not in endpoint.inside]
    policy = whole_view or next(iter(around), None)
    for base in endpoint.view.__mro__:
        own = vars(base).get("dispatch")
        yield from _within(own, policy)
        mark = mark_of(own)
        if policy is None and mark is not None:
            policy = mark.policy()
    for method, name in endpoint.handlers.items():
        handler = getattr(endpoint.view, name)
        own_policy = whole_view is not None and hasattr(handler, POLICY_MARK)  # the middleware leaves it alone
        if not own_policy and (policy is None or method.upper() in policy.methods):
            yield from _within(handler, policy)


def _within(function: Any, policy: Policy | None) -> Iterator[Inside]:
    """Yield a function and its layers, or those below `@idempotent` if no policy protects the whole of it."""
    for layer in _method_layers(function):
        mark = mark_of(layer)
        if policy is not None:
            yield Inside(layer, policy)
        elif mark is not None and is_guard(layer):
            yield from _within(layer, mark.policy())


def _method_layers(method: Any) -> Iterator[Any]:
    """Yield the layers of a method, with those of `method_decorator`, which Django makes anew for each request."""
    for layer in layers(method):
        yield layer
        found = method_decorators(layer)
        if found is not None:
            decorators, inner = found
            made: Any = wraps(inner)(partial(inner, None))
            for decorate in decorators:
                made = decorate(made)
            yield from _method_layers(made)
