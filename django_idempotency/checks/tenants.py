"""System checks of installations that serve several tenants: is the tenant part of every scope?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning

from django_idempotency.conf import allowed_hosts, conf, entries, tenant_model

_LOCAL: Final = {"localhost", "127.0.0.1", "[::1]", "testserver"}
_BOTH_HINT: Final = (
    "Name a function in TENANT{example}. If primary keys of users are unique across all of them, or SCOPE tells "
    'tenants apart, write that down: {{"TENANT": None}}.'
)


def check_tenants(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E040, W041: several tenants, or several hosts, and no TENANT."""
    if not isinstance(entries(), Mapping) or conf.is_given("TENANT") or conf.is_given("SCOPE"):
        return []
    if tenant_model() is not None:
        return [
            Error(
                "TENANT_MODEL is set, but IDEMPOTENCY has no TENANT: users with the same primary key in two tenants "
                "may share keys, stored responses and downstream keys.",
                hint=_BOTH_HINT.format(example=': "django_idempotency.tenants.schema_tenant"'),
                id="django_idempotency.E040",
            )
        ]
    hosts = sorted(set(allowed_hosts()) - _LOCAL)
    if len(hosts) > 1 or any(host.startswith(("*", ".")) for host in hosts):
        return [
            Warning(
                f"ALLOWED_HOSTS accepts several hosts ({', '.join(hosts)}), but IDEMPOTENCY has no TENANT: if a host "
                "is a tenant, its users may get the stored responses of another tenant's users.",
                hint=_BOTH_HINT.format(example=', for example "django_idempotency.tenants.host_tenant"'),
                id="django_idempotency.W041",
            )
        ]
    return []
