"""System checks of operation names: each has one endpoint, and a reconciler if its outcome can become unknown."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning

from django_idempotency.core.policy import Mode
from django_idempotency.core.states import LostLease
from django_idempotency.flow.registry import reconciled_operations
from django_idempotency.http.urlconf import Endpoint, project_endpoints


def check_operations(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E023, W031: the operations of protected views."""
    found = project_endpoints()
    return [*_shared(found), *_without_reconciler(found)]


def _shared(found: Sequence[Endpoint]) -> Iterator[CheckMessage]:
    users: dict[str, dict[tuple[int, str], str]] = defaultdict(dict)
    for endpoint in found:
        for arguments, action in endpoint.policies():
            operation = arguments.given.get("operation")
            if operation:
                users[operation].setdefault((id(arguments), action), f"/{endpoint.route} {action}".strip())
    for operation, routes in users.items():
        if len(routes) > 1:
            yield Error(
                f"The operation {operation!r} is named by several endpoints: {', '.join(sorted(routes.values()))}. "
                "A key used at one of them is rejected at the others.",
                hint="Give each its own `operation`, with @idempotent on each action, or leave it out: the default is "
                "the name of the route.",
                id="django_idempotency.E023",
            )


def _without_reconciler(found: Sequence[Endpoint]) -> Iterator[CheckMessage]:
    routes: dict[str, str] = {}
    for endpoint in found:
        for arguments, _action in endpoint.policies():
            policy = arguments.policy()
            if policy.mode is Mode.LEASED and policy.on_lost_lease is LostLease.UNKNOWN:
                routes.setdefault(policy.operation or endpoint.name, endpoint.route)
    reconciled = reconciled_operations()
    for name, route in routes.items():
        if name not in reconciled:
            yield Warning(
                f"/{route}: the operation {name!r} has no reconciler, so its records with an unknown outcome wait for "
                "a person.",
                hint=f"Register one with @reconciler({name!r}) in a module named reconcilers. Or declare what the "
                "endpoint is: mode='atomic' when all its effects are in the database, on_lost_lease='restart' when it "
                "is safe to run again, on_lost_lease='resume' when it does nothing but run an operation.",
                id="django_idempotency.W031",
            )
