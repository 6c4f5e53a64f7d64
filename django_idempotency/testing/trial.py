"""One endpoint on trial: the requests that are sent to it, and the effects that they have."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from uuid import uuid4

from django.apps import apps
from django.db import connections
from django.test import AsyncClient

from django_idempotency.store import threads
from django_idempotency.store.limits import in_transaction
from django_idempotency.store.records import alias
from django_idempotency.testing.clients import KeyedRequests, Sent
from django_idempotency.testing.messages import NotIdempotent
from django_idempotency.testing.provider import FakeProvider
from django_idempotency.testing.responses import find_difference, find_lost_header, summarize

Send: TypeAlias = Callable[[Any], object]

_OWN_TABLES: Final = frozenset({"django_idempotency", "sessions"})


@dataclass
class Trial:
    """One endpoint on trial."""

    call: Send
    given: Any
    other: Any
    effects: Callable[[], int]
    different: Send | None
    provider: FakeProvider | None
    varying: frozenset[str]

    def __post_init__(self) -> None:
        for client in (self.given, self.other):
            if client is not None and (not isinstance(client, KeyedRequests) or isinstance(client, AsyncClient)):
                kind = type(client).__name__
                raise TypeError(
                    f"Pass an IdempotentClient or IdempotentAPIClient, not {kind}. They call async views too."
                )
        self.client = copy_client(self.given)

    def new_request(self) -> Sent:
        """Return the request as `call` would send it, under a new key."""
        sent: Sent = self.client.compose(self.call)
        return sent.with_header(self.client.key_header, str(uuid4()))

    def send_first(self) -> tuple[Sent, Any, int]:
        """Send a new request, which has to succeed; return it with its response and the count of its effects."""
        sent, before = self.new_request(), self.effects()
        response = self.client.send(sent)
        if response.status_code >= 400:
            raise NotIdempotent("first_failed", f"{sent.method} {sent.path} got {summarize(response)}")
        gained = self.effects() - before
        if gained < 1:
            raise NotIdempotent("effect_not_seen", f"{sent.method} {sent.path} got {summarize(response)}")
        return sent, response, gained

    @contextmanager
    def no_effect(self, defect: str, what: str) -> Iterator[None]:
        """Fail if the block has an effect."""
        before = self.effects()
        yield
        gained = self.effects() - before
        if gained > 0:
            raise NotIdempotent(defect, f"{what}, {write_count(gained)} more were counted than before")

    def require_replay(self, sent: Sent, first: Any) -> None:
        """Send a request again, which has to get the response of the first."""
        with self.no_effect("executed_twice", "after the same request with the same key"):
            again = self.client.send(sent)
        if again.status_code >= 500 > first.status_code:
            raise NotIdempotent("retry_failed", f"first {summarize(first)}, then {summarize(again)}")
        if difference := find_difference(first, again):
            raise NotIdempotent("different_response", difference)
        if lost := find_lost_header(first, again, self.varying):
            raise NotIdempotent("lost_headers", lost)


def count_rows() -> int:
    """Count the rows of every table of the project."""
    models = (model for model in apps.get_models() if model._meta.app_label not in _OWN_TABLES and model._meta.managed)
    return sum(model._base_manager.count() for model in models)


def allows_threads() -> bool:
    """True if a second connection sees what this one commits."""
    using = alias()
    return not in_transaction(using) and connections[using].features.test_db_allows_multiple_connections


def run_in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    return threads.run_each(lambda number: work(), range(count), 120)


def copy_client(client: Any) -> Any:
    """Return a client that gets a 500 for an exception, as from a server, and shares no exception with another."""
    copied = copy(client)
    copied.raise_request_exception, copied.exc_info = False, None
    return copied


def change_body(sent: Sent) -> Sent:
    """Return the request with another value in its body, or another field."""
    body, kind = bytes(sent.data if isinstance(sent.data, bytes) else str(sent.data).encode()), sent.content_type or ""
    if "json" in kind:
        return replace(sent, data=json.dumps(_change_value(json.loads(body))).encode())
    if "multipart" in kind:
        mark, _, rest = body.partition(b"\r\n")
        part = b'\r\nContent-Disposition: form-data; name="another"\r\n\r\nvalue\r\n'
        return replace(sent, data=mark + part + mark + b"\r\n" + rest)
    return replace(sent, data=body + b"&another=value")


def _change_value(value: Any) -> Any:
    match value:
        case dict():
            name = next(iter(value), "another")
            return {**value, name: _change_value(value.get(name))}
        case list() if value:
            return [_change_value(value[0]), *value[1:]]
        case bool():
            return not value
        case int() | float():
            return value + 1
    return f"{value or ''}x"


def write_count(effects: int) -> str:
    return "1 effect" if effects == 1 else f"{effects} effects"
