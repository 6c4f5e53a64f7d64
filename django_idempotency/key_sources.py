"""Ready-made functions for the policy's `key_source`, for keys that are not in the profile's header::

    @idempotent(mode="leased", key_source=json_field("idempotency_key"))
    def pay(request): ...

You can also write a function of the request that returns the key.
"""

import json
from collections.abc import Callable

from django.http import HttpRequest
from django.http.request import RawPostDataException

from django_idempotency.exceptions import InvalidKey
from django_idempotency.http.requests import header

__all__ = ["any_header", "json_field", "path_argument"]


def any_header(*names: str) -> Callable[[HttpRequest], list[str]]:
    """Find the key in any of these headers, while clients move between them. Two different keys are rejected."""

    def find(request: HttpRequest) -> list[str]:
        return [value for name in names if (value := header(request, name)) is not None]

    return find


def json_field(name: str) -> Callable[[HttpRequest], str | None]:
    """Find the key in a member of the JSON object that is the request's body."""

    def find(request: HttpRequest) -> str | None:
        try:
            body = json.loads(request.body)
        except (ValueError, RecursionError, RawPostDataException):
            return None
        key = body.get(name) if isinstance(body, dict) else None
        if key is None or isinstance(key, str):
            return key
        raise InvalidKey("not_a_string", f"The key in {name!r} must be a string.")

    return find


def path_argument(name: str) -> Callable[[HttpRequest], str | None]:
    """Find the key in an argument of the route, such as `path("orders/<key>", …)`."""

    def find(request: HttpRequest) -> str | None:
        match = request.resolver_match
        key = None if match is None else match.kwargs.get(name)
        return None if key is None else str(key)

    return find
