"""Registers the system checks. A process imports them only if it runs them."""

from collections.abc import Callable
from typing import Any, Final

from django.core.checks import CheckMessage, Tags, register
from django.utils.module_loading import import_string

from django_idempotency.core.links import docs_url

CHECKS: Final = {
    "project.check_settings": Tags.security,
    "project.check_database": Tags.models,
    "project.check_pointers": Tags.models,
    "project.check_packet": Tags.database,  # asks the database: `migrate` and `check --database` run it
    "tenants.check_tenants": Tags.security,
    "tenants.check_admin": Tags.urls,
    "cache.check_cache": Tags.caches,
    "cors.check_cors": Tags.security,
    "endpoints.check_endpoints": Tags.urls,
    "middleware.check_middleware": Tags.urls,
    "operations.check_operations": Tags.urls,
    "deferred.check_deferred_work": Tags.urls,
}


def _import_when_run(name: str) -> Callable[..., list[CheckMessage]]:
    def check(**kwargs: Any) -> list[CheckMessage]:
        found: list[CheckMessage] = import_string(f"django_idempotency.checks.{name}")(**kwargs)
        for message in found:
            section = docs_url("reference/checks", str(message.id).removeprefix("django_idempotency.").lower())
            message.hint = f"{message.hint} See {section}"
        return found

    return check


for _name, _tag in CHECKS.items():
    register(_import_when_run(_name), _tag)
