"""System checks of installations that serve several tenants: is each of them kept apart from the others?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.apps import apps
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning

from django_idempotency.conf import allowed_hosts, conf, entries, tenant_model
from django_idempotency.flow.schemas import has_schemas
from django_idempotency.http.inventory import take_inventory

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


def check_admin(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W043: the admin of a tenant shows the records of all tenants, because no setting tells it whose they are."""
    if not apps.is_installed("django.contrib.admin") or not isinstance(entries(), Mapping):
        return []
    if conf.is_given("ADMIN_TENANT"):
        return []
    try:
        found = [(each.operation, each.policy.tenant) for each in take_inventory() if each.policy is not None]
    except (TypeError, ValueError):  # E001 and E005 report it
        return []
    own = sorted({operation for operation, tenant in found if tenant is not conf.TENANT})
    shared = tenant_model() is not None and not has_schemas() and conf.TENANT is None
    if not own and not shared:
        return []
    whose = f"The policies of {', '.join(own)} name" if own else "django-tenants has"
    return [
        Warning(
            f"{whose} tenants that the admin cannot tell from its requests: it shows the records of all tenants to "
            "the staff of each.",
            hint="Name a function of the request in ADMIN_TENANT. If only staff of the installation use the admin, "
            'write that down: {"ADMIN_TENANT": None}.',
            id="django_idempotency.W043",
        )
    ]
