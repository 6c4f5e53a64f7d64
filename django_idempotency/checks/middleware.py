"""System checks of IdempotencyMiddleware: its place, and the views that it protects wrongly or not at all."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.utils.module_loading import import_string

from django_idempotency.checks.permissions import permission_inside
from django_idempotency.conf import middleware, policy
from django_idempotency.http.urlconf import POLICY_MARK, Endpoint, project_endpoints

MIDDLEWARE: Final = "django_idempotency.middleware.IdempotencyMiddleware"


def check_middleware(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W022, E027, W033: a project that has installed the middleware."""
    if MIDDLEWARE not in middleware():
        return []
    found = project_endpoints()
    views = [message for endpoint in found for check in (_left_out, _permission_after) for message in check(endpoint)]
    return [*_skipped(), *views]


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
    if endpoint.is_rest or _carries_mark(endpoint):
        return
    methods = policy().methods
    handlers = [name for method, name in endpoint.handlers.items() if method.upper() in methods]
    if endpoint.view is not None and all(hasattr(getattr(endpoint.view, name), POLICY_MARK) for name in handlers):
        return
    permission = permission_inside(endpoint, whole_view=True)
    if permission:
        yield Warning(
            f"/{endpoint.route}: IdempotencyMiddleware answers a retry before {permission} checks the permission.",
            hint="Put @idempotent below it, and the middleware ignores the view; or @exempt if the view takes no "
            f"{' and no '.join(sorted(methods))}.",
            id="django_idempotency.W033",
        )


def _carries_mark(endpoint: Endpoint) -> bool:
    """True if the view is decorated or exempt."""
    return any(hasattr(layer, POLICY_MARK) for layer in endpoint.layers)
