"""Registers the system checks. A process imports them only if it runs them."""

from collections.abc import Callable
from typing import Any, Final

from django.core.checks import CheckMessage, Tags, register
from django.utils.module_loading import import_string

CHECKS: Final = {
    "project.check_settings": Tags.security,
    "project.check_database": Tags.models,
    "project.check_pointers": Tags.models,
    "tenants.check_tenants": Tags.security,
    "cache.check_cache": Tags.caches,
    "endpoints.check_endpoints": Tags.urls,
    "middleware.check_middleware": Tags.urls,
    "operations.check_operations": Tags.urls,
    "deferred.check_deferred_work": Tags.urls,
}


def _import_when_run(name: str) -> Callable[..., list[CheckMessage]]:
    def check(**kwargs: Any) -> list[CheckMessage]:
        found: list[CheckMessage] = import_string(f"django_idempotency.checks.{name}")(**kwargs)
        return found

    return check


for _name, _tag in CHECKS.items():
    register(_import_when_run(_name), _tag)
