"""Every undocumented name of Django, Django REST framework and django-ninja that views and their checks rely on.

Check this one list against each new release of each package: a name that is gone would not be noticed, as a failing
import is. The helpers only use attributes, so neither framework need be installed.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from io import BytesIO
from types import FunctionType
from typing import Any, Final

from django.http import HttpRequest
from django.middleware.csrf import CsrfViewMiddleware

# Django: `non_atomic_requests` and `BaseHandler.make_view_atomic` keep the aliases a view opted out of under this name.
NON_ATOMIC_REQUESTS: Final = "_non_atomic_requests"

# Django: `get_token` sets this entry of `request.META` when a page asks for a CSRF token.
CSRF_META: Final = "CSRF_COOKIE_NEEDS_UPDATE"

# Django REST framework: the Django request inside one of its own.
DJANGO_REQUEST: Final = "_request"

# Django: the two mixins that ask for more than a login do it in `dispatch`.
_AUTH_DISPATCHES: Final = ("PermissionRequiredMixin.dispatch", "UserPassesTestMixin.dispatch")

# Django: `method_decorator` decorates a function of this module too, to copy what the decorator sets on it.
_METHOD_DECORATOR: Final = "django.utils.decorators"


def is_method_decorators_own(view: Any) -> bool:
    """True if this is not the project's view but a function of `method_decorator`, which is never called."""
    return getattr(view, "__module__", None) == _METHOD_DECORATOR


def body_was_read(request: HttpRequest) -> bool:
    """True if the body is in memory. Django keeps it in `_body`."""
    return hasattr(request, "_body")


def drain_stream(request: HttpRequest) -> int | None:
    """Read the rest of a body that is not kept, and return its size; None if the server gave Django the whole body.

    Django reads from `_stream`. That of a WSGI request counts the bytes in `_pos`; that of an ASGI request does not.
    """
    if not hasattr(request._stream, "_pos"):
        return None
    while request._stream.read(65536):
        pass
    return int(request._stream._pos)


def skip_csrf_check(request: HttpRequest) -> None:
    """Let a framework's session authentication ask for no token. Django's middleware reads this attribute."""
    setattr(request, "_dont_enforce_csrf_checks", True)  # noqa: B010 - Django declares it nowhere


def form_was_parsed(request: HttpRequest) -> bool:
    """True if the form has been parsed. Django keeps its fields in `_post`."""
    return hasattr(request, "_post")


def forget_form(request: HttpRequest) -> None:
    """Let the view parse the form itself, and meet the same error. Django keeps the result in `_post` and `_files`."""
    for name in ("_post", "_files"):
        delattr(request, name)


def rewind_stream(request: HttpRequest) -> None:
    """Let the view read the body from its start again. Django reads from `_stream`."""
    if body_was_read(request):
        request._stream = BytesIO(request._body)


def parsed_uploads(request: HttpRequest) -> Iterable[Any]:
    """Yield the uploads parsed so far. Django keeps them in `_files`; `FILES` would parse the form."""
    uploads: Any = getattr(request, "_files", {})
    for name in uploads:
        yield from uploads.getlist(name)


def forget_parsed_body(rest_request: Any, empty: type) -> None:
    """Make Django REST framework parse the body again: `empty` is its marker for data that is not loaded yet."""
    rest_request._stream = rest_request._data = rest_request._full_data = empty


def merge_parsed_form(rest_request: Any) -> None:
    """Build `request.data` anew from the parsed form, as `Request._load_data_and_files` does."""
    if rest_request._files:
        rest_request._full_data = rest_request._data.copy()
        rest_request._full_data.update(rest_request._files)


def simplify_route(route: str) -> str:
    """Return a route, or the regular expression of one, as people read it: `/orders/<pk>/`."""
    from django.contrib.admindocs.views import simplify_regex  # imports the admin, which a server may do without

    return re.sub(r"\\(\W)", r"\1", simplify_regex(route))  # a full stop is escaped in a regular expression


def rest_class(callback: Any) -> type | None:
    """Return the class behind a callback of Django REST framework. `as_view` and `@api_view` set `cls`."""
    found: type | None = getattr(callback, "cls", None)
    return found


def rest_arguments(callback: Any) -> dict[str, Any]:
    """Return the arguments that `as_view` of Django REST framework was given. It sets `initkwargs`."""
    found: dict[str, Any] = getattr(callback, "initkwargs", {})
    return found


def rest_actions(callback: Any) -> dict[str, str]:
    """Map HTTP methods to the actions of a view set, if this is the callback of one. `as_view` sets `actions`."""
    return getattr(callback, "actions", None) or {}


def view_of(rest_request: Any) -> Any:
    """Return the view that a request of Django REST framework was made for; None for any other object."""
    return getattr(rest_request, "parser_context", {}).get("view")


def has_own_get_object(cls: Any) -> bool:
    """True if `get_object` is Django REST framework's: it needs the argument of the URL that the view names."""
    return is_of_rest_framework(cls.get_object)


def is_of_rest_framework(function: Any) -> bool:
    """True if Django REST framework defines this function."""
    return bool(function.__module__.startswith("rest_framework."))


def object_permission(permission: Any) -> str:
    """Return the name of the permission class that overrides `has_object_permission`; empty if none does.

    Combined permissions, such as `A & B`, keep their parts in `op1_class` and `op2_class`.
    """
    parts = [getattr(permission, name) for name in ("op1_class", "op2_class") if hasattr(permission, name)]
    if parts:
        return next(filter(None, map(object_permission, parts)), "")
    asks = permission.has_object_permission
    is_default = is_of_rest_framework(asks) and asks.__qualname__ == "BasePermission.has_object_permission"
    return "" if is_default else permission.__name__


def is_made_by_api_view(cls: Any) -> bool:
    """True if `@api_view` made this class for one function. It calls every one of them `WrappedAPIView`."""
    return bool(cls.__qualname__ == "WrappedAPIView")


def tests_more_than_login(layer: Any) -> bool:
    """True if this is Django's own code for a permission or a test of the project's, other than that of a login.

    Django marks neither its decorators nor its mixins. They are recognised by the qualified names of their functions,
    the test of a decorator by the name of the variable that `user_passes_test` closes over.
    """
    name = _qualified_name(layer)
    if name in _AUTH_DISPATCHES:
        return bool(layer.__module__ == "django.contrib.auth.mixins")
    test = _closure(layer).get("test_func") if name.startswith("user_passes_test.") else None
    return test is not None and not getattr(test, "__qualname__", "").startswith("login_required.")


def checks_csrf_token(layer: Any) -> bool:
    """True if this belongs to `csrf_protect`: it closes over the middleware that it was made from.

    The two other decorators that Django makes of a subclass of that middleware refuse nothing.
    """
    made = (
        _closure(layer).get("middleware") if _qualified_name(layer).startswith("make_middleware_decorator.") else None
    )
    return isinstance(made, CsrfViewMiddleware) and type(made).__module__ != "django.views.decorators.csrf"


def accepted_methods(layer: Any) -> Collection[str] | None:
    """Return the methods that `require_http_methods` lets through; None if this is not what it returned."""
    is_its_own = _qualified_name(layer).startswith("require_http_methods.")
    return _closure(layer).get("request_method_list") if is_its_own else None


def method_decorators(layer: Any) -> tuple[Sequence[Any], Any] | None:
    """Return the decorators of a method, innermost first, and the method, if `method_decorator` returned this."""
    if _qualified_name(layer) != "_multi_decorate.<locals>._wrapper":
        return None
    closure = _closure(layer)
    return closure["decorators"], closure["method"]


def _qualified_name(layer: Any) -> str:
    """Return the name of a function as its source has it: functools.wraps changes the others."""
    return layer.__code__.co_qualname if isinstance(layer, FunctionType) else ""


def _closure(layer: FunctionType) -> dict[str, Any]:
    """Return the variables that a function closes over."""
    cells = zip(layer.__code__.co_freevars, layer.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def ninja_operations(view: Any) -> Iterable[Any]:
    """Return the operations of a path of django-ninja. Its view closes over an object that has a list."""
    return getattr(view, "operations", ()) if type(view).__module__ == "ninja.operation" else ()
