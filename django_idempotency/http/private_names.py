"""Every undocumented name of Django and Django REST framework that views and their checks rely on.

Check this one list against each new release of either package: a name that is gone would not be noticed, as a failing
import is. The helpers only use attributes, so Django REST framework need not be installed.
"""

from collections.abc import Iterable
from io import BytesIO
from types import FunctionType
from typing import Any, Final

from django.http import HttpRequest

# Django: `non_atomic_requests` and `BaseHandler.make_view_atomic` keep the aliases a view opted out of under this name.
NON_ATOMIC_REQUESTS: Final = "_non_atomic_requests"

# Django: `get_token` sets this entry of `request.META` when a page asks for a CSRF token.
CSRF_META: Final = "CSRF_COOKIE_NEEDS_UPDATE"

# Django REST framework: the Django request inside one of its own.
DJANGO_REQUEST: Final = "_request"

# Django: `method_decorator` decorates a function of this module too, to copy what the decorator sets on it.
_METHOD_DECORATOR: Final = "django.utils.decorators"

# Django: the names of the two mixins that ask for more than a login.
_AUTH_MIXINS: Final = ("PermissionRequiredMixin", "UserPassesTestMixin")


def is_method_decorators_own(view: Any) -> bool:
    """True if this is not the project's view but a function of `method_decorator`, which is never called."""
    return getattr(view, "__module__", None) == _METHOD_DECORATOR


def body_was_read(request: HttpRequest) -> bool:
    """True if the body is in memory. Django keeps it in `_body`."""
    return hasattr(request, "_body")


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


def is_made_by_api_view(cls: type) -> bool:
    """True if `@api_view` made this class for one function. It calls every one of them `WrappedAPIView`."""
    return cls.__qualname__ == "WrappedAPIView"


def is_permission_mixin(cls: type) -> bool:
    """True if this is a mixin of Django's that asks for a permission or a test of the project's."""
    return cls.__module__ == "django.contrib.auth.mixins" and cls.__name__ in _AUTH_MIXINS


def tests_more_than_login(layer: Any) -> bool:
    """True if this is what `user_passes_test` returns, with another test than that of `login_required`.

    Django marks neither decorator. Their wrappers are recognised by their qualified names, the test by the name of the
    variable that `user_passes_test` closes over.
    """
    if not isinstance(layer, FunctionType) or not layer.__code__.co_qualname.startswith("user_passes_test."):
        return False
    closure = dict(zip(layer.__code__.co_freevars, layer.__closure__ or (), strict=True))
    test = closure["test_func"].cell_contents if "test_func" in closure else None
    return test is not None and not getattr(test, "__qualname__", "").startswith("login_required.")
