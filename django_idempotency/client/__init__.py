"""Clients of services that accept idempotency keys. Django, httpx and requests are imported only when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_idempotency.client import errors
from django_idempotency.client.calls import CallStore, OutgoingCall, ReceivedResponse
from django_idempotency.client.errors import *  # noqa: F403 - errors.__all__
from django_idempotency.client.outbox import Outbox
from django_idempotency.client.retrying import CallRules

if TYPE_CHECKING:
    from django_idempotency.client.httpx_transport import AsyncIdempotentTransport, IdempotentTransport
    from django_idempotency.client.requests_adapter import IdempotentAdapter

__all__ = ["CallRules", "CallStore", "Outbox", "OutgoingCall", "ReceivedResponse"]
__all__ += ["AsyncIdempotentTransport", "IdempotentAdapter", "IdempotentTransport"]  # imported when they are used
__all__ += errors.__all__


def __getattr__(name: str) -> Any:
    """Import a library when its class is used."""
    if name not in ("AsyncIdempotentTransport", "IdempotentAdapter", "IdempotentTransport"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "requests_adapter" if name == "IdempotentAdapter" else "httpx_transport"
    return getattr(import_module(f"{__name__}.{module}"), name)
