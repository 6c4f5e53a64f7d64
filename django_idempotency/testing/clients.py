"""Test clients that send an idempotency key with each request that may write."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import mock
from uuid import uuid4

from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory

HEADER: Final = "Idempotency-Key"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_CREDENTIALS: Final = frozenset({"AUTHORIZATION", "COOKIE"})

C = TypeVar("C", bound="KeyedRequests")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as a test client encoded it: sent again, it has the same bytes."""

    method: str
    path: str
    data: Any
    content_type: str | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_header(self, name: str, value: str | None) -> "Sent":
        """Return the request with this header alone under its name; without it if the value is None."""
        sent = self.without({_normalize(name)})
        if value is None:
            return sent
        return replace(sent, options={**sent.options, "headers": {**sent.options["headers"], name: value}})

    def without_credentials(self) -> "Sent":
        return self.without(_CREDENTIALS)

    def without(self, names: frozenset[str] | set[str]) -> "Sent":
        """Return the request without these headers, which are named as `_normalize` names them."""
        options = {name: value for name, value in self.options.items() if _normalize(name) not in names}
        headers = options.get("headers") or {}
        options["headers"] = {name: value for name, value in headers.items() if _normalize(name) not in names}
        return replace(self, options=options)


class Composed(BaseException):
    """Carries a request out of the code that wanted to send it."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent


if TYPE_CHECKING:
    _Factory = RequestFactory
else:
    _Factory = object


class KeyedRequests(_Factory):
    """Mixed into a test client: each request that may write has a new key, unless the test gives it one."""

    key_header = HEADER

    _key: str | None = ""  # "": a new one for each request; None: no key
    _only_compose = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._history: list[Sent] = []  # shared with the copies that `with_key` makes

    def generic(  # type: ignore[override] # Django's has a sync and an async twin
        self, method: str, path: str, data: Any = b"", content_type: str | None = "application/octet-stream",
        *secure: Any, **options: Any,
    ) -> Any:  # fmt: skip
        sent = Sent(method, path, data, content_type, {**options, "secure": secure[0]} if secure else options)
        if method in _SAFE:
            return self.send(sent)
        if self._key != "":
            sent = sent.with_header(self.key_header, self._key)
        elif not has_header(self.key_header, {**self.defaults, **options}):
            sent = sent.with_header(self.key_header, str(uuid4()))
        if self._only_compose:
            raise Composed(sent)
        self._history[:] = [sent]
        return self.send(sent)

    def send(self, sent: Sent) -> Any:
        """Send a request as it was composed, or sent before."""
        return super().generic(sent.method, sent.path, sent.data, sent.content_type or "", **sent.options)

    def repeat(self) -> Any:
        """Send the last request that may write again, with the same key and the same bytes."""
        return self.send(self.last)

    @property
    def last(self) -> Sent:
        if not self._history:
            raise LookupError("Nothing was sent yet with POST, PUT, PATCH or DELETE, so there is nothing to repeat.")
        return self._history[0]

    @property
    def last_key(self) -> str | None:
        """The key of the last request that may write."""
        return find_header(self.key_header, {**self.defaults, **self.last.options})

    def with_key(self: C, key: str | None) -> C:
        """Return a client that always sends this key, or none if it is None. It shares cookies and credentials."""
        other = copy(self)
        other._key = key
        return other

    def compose(self: C, call: Callable[[C], object]) -> Sent:
        """Return the request that `call` would send first, without sending it."""
        composer = copy(self)
        composer._only_compose = True
        try:
            call(composer)
        except Composed as composed:
            return composed.sent
        raise ValueError("The call sent no POST, PUT, PATCH or DELETE through the client that it was given.")


class IdempotentClient(KeyedRequests, Client):
    """Django's test client, with keys."""


class AsyncIdempotentClient(KeyedRequests, AsyncClient):
    """Django's async test client, with keys."""


@contextmanager
def add_keys(header: str = HEADER) -> Iterator[None]:
    """Add a new key to each request that may write and has none, of every test client and request factory."""

    def keyed(generic: Callable[..., Any]) -> Callable[..., Any]:
        def send(self: RequestFactory, method: str, path: str, *arguments: Any, **options: Any) -> Any:
            if method not in _SAFE and not has_header(header, {**self.defaults, **options}):
                options["headers"] = {**(options.get("headers") or {}), header: str(uuid4())}
            return generic(self, method, path, *arguments, **options)

        return send

    with ExitStack() as stack:
        for factory in (RequestFactory, AsyncRequestFactory):
            stack.enter_context(mock.patch.object(factory, "generic", keyed(factory.generic)))
        yield


def has_header(name: str, options: Mapping[str, Any]) -> bool:
    return find_header(name, options) is not None


def find_header(name: str, options: Mapping[str, Any]) -> str | None:
    """Return a header among a test client's options: in `headers`, or named as WSGI or ASGI names it."""
    given = {**options, **(options.get("headers") or {})}
    return next((str(value) for each, value in given.items() if _normalize(each) == _normalize(name)), None)


def _normalize(name: str) -> str:
    return name.upper().replace("-", "_").removeprefix("HTTP_")
