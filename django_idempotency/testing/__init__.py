"""A kit for a project's own tests: clients that send keys, `assert_idempotent`, crashes, and a provider that fails.

Each name is imported when it is used, because the plugin is loaded before Django is set up, and because two names need
Django REST framework or factory-boy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from django_idempotency.testing.clients import AsyncIdempotentClient, IdempotentClient, add_keys
    from django_idempotency.testing.crashes import Crash, crash_at
    from django_idempotency.testing.endpoints import Report, assert_idempotent
    from django_idempotency.testing.factories import RecordFactory
    from django_idempotency.testing.messages import NotIdempotent, UntestedWarning
    from django_idempotency.testing.provider import AnswerLost, FakeProvider
    from django_idempotency.testing.responses import assert_refused, assert_replayed
    from django_idempotency.testing.rest import IdempotentAPIClient
    from django_idempotency.testing.states import grace_over, lease_over, retention_over, unknown

__all__ = [
    "AnswerLost",
    "AsyncIdempotentClient",
    "Crash",
    "FakeProvider",
    "IdempotentAPIClient",
    "IdempotentClient",
    "NotIdempotent",
    "RecordFactory",
    "Report",
    "UntestedWarning",
    "add_keys",
    "assert_idempotent",
    "assert_refused",
    "assert_replayed",
    "crash_at",
    "grace_over",
    "lease_over",
    "retention_over",
    "unknown",
]

_MODULES: Final = {
    "clients": ("AsyncIdempotentClient", "IdempotentClient", "add_keys"),
    "crashes": ("Crash", "crash_at"),
    "endpoints": ("Report", "assert_idempotent"),
    "factories": ("RecordFactory",),
    "messages": ("NotIdempotent", "UntestedWarning"),
    "provider": ("AnswerLost", "FakeProvider"),
    "responses": ("assert_refused", "assert_replayed"),
    "rest": ("IdempotentAPIClient",),
    "states": ("grace_over", "lease_over", "retention_over", "unknown"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
