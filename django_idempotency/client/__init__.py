"""Clients of services that take idempotency keys. Nothing here imports Django, httpx or requests before it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "AsyncIdempotentTransport",
    "CallError",
    "CallRules",
    "CallStore",
    "ChangedRequest",
    "IdempotentAdapter",
    "IdempotentTransport",
    "InProgress",
    "KeyExpired",
    "KeyRejected",
    "KeyReused",
    "NothingDone",
    "Outbox",
    "OutcomeUnknown",
    "OutgoingCall",
    "ReceivedResponse",
    "TooOld",
    "UnrepeatableBody",
]

if TYPE_CHECKING:
    from django_idempotency.client.calls import CallStore, OutgoingCall, ReceivedResponse
    from django_idempotency.client.errors import (
        CallError,
        ChangedRequest,
        InProgress,
        KeyExpired,
        KeyRejected,
        KeyReused,
        NothingDone,
        OutcomeUnknown,
        TooOld,
        UnrepeatableBody,
    )
    from django_idempotency.client.httpx_transport import AsyncIdempotentTransport, IdempotentTransport
    from django_idempotency.client.outbox import Outbox
    from django_idempotency.client.requests_adapter import IdempotentAdapter
    from django_idempotency.client.retrying import CallRules
else:
    _MODULES: Final = {
        "AsyncIdempotentTransport": "httpx_transport",
        "CallRules": "retrying",
        "CallStore": "calls",
        "IdempotentAdapter": "requests_adapter",
        "IdempotentTransport": "httpx_transport",
        "Outbox": "outbox",
        "OutgoingCall": "calls",
        "ReceivedResponse": "calls",
    }

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
