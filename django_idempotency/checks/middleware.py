"""System checks of IdempotencyMiddleware: its place, and the views that it protects wrongly or not at all."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.utils.module_loading import import_string

from django_idempotency.checks.permissions import functions_inside, permission_in, refusals_inside
from django_idempotency.checks.transactions import durable_inside
from django_idempotency.conf import middleware, policy
from django_idempotency.core.policy import Mode
from django_idempotency.http.inventory import MIDDLEWARE
from django_idempotency.http.urlconf import Endpoint, project_endpoints
from django_idempotency.http.wrapping import POLICY_MARK


def check_middleware(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W022, E027, W033, W036, W037, W042: a project that has installed the middleware."""
    if MIDDLEWARE not in middleware():
        return []
    found = project_endpoints()
    return [*_skipped(), *(message for endpoint in found for check in _CHECKS for message in check(endpoint))]


def _skipped() -> Iterator[CheckMessage]:
    installed = middleware()
    for path in installed[installed.index(MIDDLEWARE) + 1 :]:
        if hasattr(import_string(path), "process_view"):
            yield Error(
                f"IdempotencyMiddleware comes before {path}, whose process_view is skipped for protected requests.",
                hint=f"Put {MIDDLEWARE!r} last in MIDDLEWARE.",
                id="django_idempotency.E027",
            )


def _left_out(endpoint: Endpoint) -> Iterator[CheckMessage]:
    if not endpoint.is_rest or endpoint.has_mixin or endpoint.inside or _carries_mark(endpoint):
        return
    unprotected = sorted(
        method.upper()
        for method, name in endpoint.handlers.items()
        if method.upper() in policy().methods and not hasattr(getattr(endpoint.view, name), POLICY_MARK)
    )
    if unprotected:
        name = getattr(endpoint.view, "__name__", "")
        yield Warning(
            f"/{endpoint.route}: IdempotencyMiddleware ignores {name}, so its {' and '.join(unprotected)} is not "
            "protected.",
            hint=f"Write `class {name}(IdempotentMixin, …)`, put @idempotent above @api_view, or mark it with @exempt.",
            id="django_idempotency.W022",
        )


def _permission_after(endpoint: Endpoint) -> Iterator[CheckMessage]:
    methods = policy().methods
    if not _is_protected(endpoint):
        return
    found = functions_inside(endpoint, policy())
    permission = permission_in(found)
    if permission:
        yield Warning(
            f"/{endpoint.route}: IdempotencyMiddleware answers a retry before {permission} checks the permission.",
            hint="Put @idempotent below it, and the middleware ignores the view; or @exempt if the view takes no "
            f"{' and no '.join(sorted(methods))}.",
            id="django_idempotency.W033",
        )
    yield from refusals_inside(endpoint, found, "IdempotencyMiddleware")
    yield from durable_inside(endpoint, found)


def _async_and_atomic(endpoint: Endpoint) -> Iterator[CheckMessage]:
    if policy().mode is Mode.ATOMIC and _is_protected(endpoint) and any(map(iscoroutinefunction, endpoint.layers)):
        yield Warning(
            f"/{endpoint.route}: the setting MODE is 'atomic', but an async view cannot be atomic, so "
            "IdempotencyMiddleware rejects its requests with an error.",
            hint="Put @idempotent(mode='leased') on it, and the middleware ignores the view; or @exempt if the view "
            f"takes no {' and no '.join(sorted(policy().methods))}.",
            id="django_idempotency.W042",
        )


def _is_protected(endpoint: Endpoint) -> bool:
    """True if the middleware protects the view, or would if the view took such a method."""
    if endpoint.is_rest or _carries_mark(endpoint):
        return False
    if endpoint.view is None:
        return True
    handlers = [name for method, name in endpoint.handlers.items() if method.upper() in policy().methods]
    return not all(hasattr(getattr(endpoint.view, name), POLICY_MARK) for name in handlers)


def _carries_mark(endpoint: Endpoint) -> bool:
    """True if the view is decorated or exempt."""
    return any(hasattr(layer, POLICY_MARK) for layer in endpoint.layers)


_CHECKS: Final = (_left_out, _permission_after, _async_and_atomic)
