"""`authorize="object"`: lets a view of Django REST framework find its object, which checks the object's permissions.

Imports nothing of Django REST framework: the view brings everything along.
"""

from typing import Any

from django.db.transaction import atomic
from django.http import Http404

from django_idempotency.core.replies import Reply
from django_idempotency.http.private_names import has_own_get_object
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
