"""Who is asking, for views that are not DRF's: the same tokens, looked up before the view runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest
from rest_framework.authtoken.models import Token
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated

View = Callable[..., Any]
Lookup = Callable[[HttpRequest], User | None]
STRIPE_PREFIX = "sk_test_"


def by_token(request: HttpRequest) -> User | None:
    """`Authorization: Token …`; none at all is nobody, a wrong one is refused."""
    header = request.headers.get("Authorization", "")
    if not header:
        return None
    scheme, _, key = header.partition(" ")
    token = Token.objects.select_related("user").filter(key=key, user__is_active=True).first()
    if scheme.lower() != "token" or token is None:
        raise AuthenticationFailed("Invalid token.")
    user: User = token.user
    return user


def by_stripe_key(request: HttpRequest) -> User | None:
    """`Authorization: Bearer sk_test_alice` stands for alice."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not key.startswith(STRIPE_PREFIX):
        return None
    return User.objects.filter(username=key.removeprefix(STRIPE_PREFIX), is_active=True).first()


def authenticated(lookup: Lookup, *, optional: bool = False) -> Callable[[View], View]:
    """Set `request.user` before the view runs; without a user answer 401, unless that is allowed."""

    def admit(request: HttpRequest) -> None:
        user = lookup(request)
        if user is not None:
            request.user = user
        elif not optional:
            raise NotAuthenticated()

    def decorate(view: View) -> View:
        @wraps(view)
        def sync_view(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            admit(request)
            return view(request, *args, **kwargs)

        @wraps(view)
        async def async_view(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            await sync_to_async(admit)(request)
            return await view(request, *args, **kwargs)

        return async_view if iscoroutinefunction(view) else sync_view

    return decorate
