"""System checks of object permissions: a replay is given without them unless the policy's `authorize` asks."""

import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Warning

from django_idempotency.core.validation import OBJECT
from django_idempotency.http.private_names import has_own_get_object, is_of_rest_framework, object_permission
from django_idempotency.http.urlconf import Endpoint
from django_idempotency.http.wrapping import layers

_ASKING: Final = frozenset({"get_object", "check_object_permissions"})
_CREATING: Final = ("post", "create")  # the methods of Django REST framework that create, and so have no object yet


def no_object_to_ask(endpoint: Endpoint) -> Iterator[CheckMessage]:
    """E038: authorize="object" on a view that cannot ask."""
    if endpoint.is_rest and hasattr(endpoint.view, "get_object"):
        return
    if any(arguments.policy().authorize == OBJECT for arguments, _action in endpoint.policies()):
        yield Error(
            f"/{endpoint.route}: authorize='object' asks the get_object() of a view of Django REST framework, and this "
            "view has none.",
            hint="Write a function that tells whether the caller may see the stored response: "
            "authorize=lambda request, record: …",
            id="django_idempotency.E038",
        )


def object_not_asked(endpoint: Endpoint) -> Iterator[CheckMessage]:
    """W039: an object permission that nothing asks on a replay."""
    permission = next(filter(None, map(object_permission, endpoint.permission_classes)), "")
    unasked = [name for name, arguments in endpoint.protected_methods() if arguments.policy().authorize is None]
    names = sorted({name for name in unasked if _has_object(endpoint, getattr(endpoint.view, name))})
    if permission and names:
        yield Warning(
            f"/{endpoint.route}: {permission} has object permissions, and a retry of {' or '.join(names)} gets the "
            "stored response without a look at them.",
            hint="Write authorize='object', which calls get_object() before a replay, or a function of your own.",
            id="django_idempotency.W039",
        )


def _has_object(endpoint: Endpoint, handler: Any) -> bool:
    """True if the route has the argument that get_object() needs, or the method asks for an object without it."""
    view: Any = endpoint.view
    if hasattr(view, "get_object"):
        argument = getattr(view, "lookup_url_kwarg", None) or getattr(view, "lookup_field", "")
        if argument and re.search(rf"[<:]{re.escape(argument)}>", endpoint.route):
            return True
        if is_of_rest_framework(handler):
            return not has_own_get_object(view) and handler.__name__ not in _CREATING
    functions = [each for each in layers(handler) if isinstance(each, FunctionType)]
    return any(not _ASKING.isdisjoint(each.__code__.co_names) for each in functions)
