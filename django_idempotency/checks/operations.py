"""System checks of operations: each has one endpoint, and a mode or a reconciler."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning

from django_idempotency.conf import conf, middleware
from django_idempotency.core.states import LostLease
from django_idempotency.flow.registry import reconciled_operations
from django_idempotency.http.inventory import MIDDLEWARE
from django_idempotency.http.urlconf import Endpoint, project_endpoints

_LISTED: Final = 20  # a longer list is cut, and the others are counted


def check_operations(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E023, W031: the operations of protected views."""
    found = project_endpoints()
    return [*_shared(found), *_without_mode(found)]


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


def _without_mode(found: Sequence[Endpoint]) -> Iterator[CheckMessage]:
    if not found or conf.is_given("MODE"):
        return
    by_middleware = ["every view that only IdempotencyMiddleware protects"] if MIDDLEWARE in middleware() else []
    listed = [*by_middleware, *_without_mode_or_reconciler(found)]
    if listed:
        more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
        yield Warning(
            f"Views with neither a mode nor a reconciler ({len(listed)}): {', '.join(listed[:_LISTED])}{more}. An "
            "unexpected exception in one of them leaves an unknown outcome, which a person has to settle.",
            hint="Does the view call anything outside this database? No: mode='atomic'; an exception then rolls "
            "everything back and frees the key. Yes: mode='leased', and @reconciler(…) with the name in parentheses, "
            "in a module named reconcilers. IDEMPOTENCY['MODE'] is the mode of all views that name none.",
            id="django_idempotency.W031",
        )


def _without_mode_or_reconciler(found: Sequence[Endpoint]) -> Iterable[str]:
    reconciled = reconciled_operations()
    listed: dict[str, str] = {}
    for endpoint in found:
        for arguments, _action in endpoint.policies():
            policy = arguments.policy()
            operation = policy.operation or endpoint.name
            undecided = "mode" not in arguments.given and policy.on_lost_lease is LostLease.UNKNOWN
            if undecided and operation not in reconciled:
                listed.setdefault(operation, f"/{endpoint.route} ({operation})")
    return listed.values()
