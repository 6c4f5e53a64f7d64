"""`authorize="object"`: lets a view of Django REST framework find its object, which checks the object's permissions.

Imports nothing of Django REST framework: the view brings everything along.
"""

from copy import copy
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.transaction import atomic
from django.http import Http404, HttpRequest
from django.urls import ResolverMatch

from django_idempotency.core.replies import Reply
from django_idempotency.http.private_names import has_own_get_object
from django_idempotency.http.urlconf import Endpoint
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.records import alias


def require_object(view: Any, reply: Reply) -> None:
    """Call the view's `get_object()`, and raise what it raises. It may lock the object: a transaction is open.

    A DELETE whose object is gone gets its stored response again, unless that has a body.
    """
    if not names_object(view):
        return
    try:
        with atomic(alias()):
            view.get_object()
    except Exception as error:
        is_gone = isinstance(error, Http404) or getattr(error, "status_code", None) == 404
        if not is_gone or view.request.method != "DELETE" or reply.body:
            raise


def names_object(view: Any) -> bool:
    """False if `get_object()` is Django REST framework's, and this route has no argument that it could use."""
    return not has_own_get_object(type(view)) or (view.lookup_url_kwarg or view.lookup_field) in view.kwargs


def require_object_of(row: IdempotencyKey, match: ResolverMatch | None, request: HttpRequest, reply: Reply) -> None:
    """Ask the view that took this work, as if the caller of `request` sent its request again.

    The caller is authenticated already. Permissions are asked, throttles are not. The request has no body.
    """
    endpoint = Endpoint("", None if match is None else match.func)
    may_be_cut = len(row.request_path) == IdempotencyKey._meta.get_field("request_path").max_length
    if match is None or may_be_cut or not endpoint.is_rest or not hasattr(endpoint.view, "get_object"):
        raise PermissionDenied
    again = copy(request)
    again.method, again.path, again.resolver_match = row.request_method, row.request_path, match
    cls: Any = endpoint.view
    view = cls(**endpoint.arguments)
    view.action_map = endpoint.handlers
    view.args, view.kwargs = match.args, match.kwargs
    view.request = view.initialize_request(again, *match.args, **match.kwargs)
    view.request.authenticators = ()
    view.request.user, view.request.auth = getattr(request, "user", None), getattr(request, "auth", None)
    view.check_permissions(view.request)
    require_object(view, reply)
