"""Calls that survive their process: each is on disk, with its key, before it is sent."""

import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from django_idempotency.client.calls import CallStore, OutgoingCall, ReceivedResponse, find_origin
from django_idempotency.client.errors import CallError, ChangedRequest, TooOld

_KEPT: Final = ("content-type", "content-encoding", "accept")  # the client adds all others, credentials too


@dataclass
class OnceBlock:
    """The block of `once`: the one call that is made in it."""

    outbox: "Outbox"
    name: str
    key: str = ""
    is_resumed: bool = False  # the call was stored before, so it may have been sent

    def enter(self, request: Any, body: bytes, header: str, *, is_given: bool) -> OutgoingCall:
        """Store the call before it is sent, or find it. Its key is in the header."""
        kept = {name: request.headers[name] for name in (header, *self.outbox.headers) if name in request.headers}
        new = OutgoingCall(self.name, kept[header], request.method, str(request.url), body, kept, time.time())
        call = self.outbox.store.add(new)
        moved = new.key == self.key and call.response is None  # the client follows a redirect
        self.key, self.is_resumed = call.key, call.created != new.created
        same = (call.method, call.body) == (new.method, new.body) and (call.url == new.url or moved)
        if not same or (is_given and call.key != new.key):
            raise ChangedRequest(f"The call {self.name!r} was another request before. It was not sent.", key=call.key)
        if call.response is None and abs(new.created - call.created) > self.outbox.max_age:  # or the clock was wrong
            raise TooOld(f"The call {self.name!r} is too old: find out what happened, then delete it.", key=call.key)
        return call

    def finish(self, response: ReceivedResponse) -> ReceivedResponse:
        """Store the response if it is the outcome of the call. Return the one that the call has."""
        new = response.without_transport()
        kept = self.outbox.store.finish(self.name, new) if response.is_outcome else new
        return response if kept == new else kept


CURRENT_BLOCK: Final[ContextVar[OnceBlock | None]] = ContextVar("idempotency_once", default=None)


class Outbox:
    """Keeps named calls in a SQLite file on a local disk, or in a `CallStore` of your own.

    Of the headers of a request it keeps the key and those in `headers`.
    It sends no call that is open for more than `max_age` seconds: services keep responses for a day.
    """

    def __init__(
        self, store: CallStore | str | os.PathLike[str], *, headers: Collection[str] = _KEPT, max_age: float = 23 * 3600
    ) -> None:
        self.store = SQLiteStore(store) if isinstance(store, str | os.PathLike) else store
        self.headers, self.max_age = headers, max_age

    @contextmanager
    def once(self, name: str) -> Iterator[OnceBlock]:
        """Name the one POST or PATCH that is sent in this block. If it has its response already, nothing is sent."""
        block = OnceBlock(self, name)
        token = CURRENT_BLOCK.set(block)
        try:
            yield block
        finally:
            CURRENT_BLOCK.reset(token)
        if not block.key:
            raise CallError(f"No request of the call {name!r} went through an idempotent transport or adapter.")

    def resume(self, client: Any, *, origin: str = "", **options: Any) -> Iterator[tuple[str, Any]]:
        """Send the open calls of one service again, with an httpx.Client or requests.Session that adds its credentials.

        The service is that of `origin`, or else of the client's `base_url`; calls of other services stay open.
        Yield the name of each with its response, or with the exception that keeps it open. `options` are further
        arguments of `client.request`, such as `timeout`.
        """
        for call in _choose(self.store.open_calls(), client, origin):
            try:
                with self.once(call.name):
                    result = _send(client, call, options)
            except Exception as error:  # noqa: BLE001 - told with its call: the next ones are independent of it
                result = error
            yield call.name, result

    async def aresume(self, client: Any, *, origin: str = "", **options: Any) -> AsyncIterator[tuple[str, Any]]:
        """Do what `resume` does, with an httpx.AsyncClient."""
        for call in await self.run_in_thread(lambda: _choose(self.store.open_calls(), client, origin)):
            try:
                with self.once(call.name):
                    result = await _send(client, call, options)
            except Exception as error:  # noqa: BLE001 - as in `resume`: it keeps this one call open
                result = error
            yield call.name, result

    async def run_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function that uses the store, in asyncio or trio."""
        from anyio.to_thread import run_sync  # comes with httpx

        return await getattr(self.store, "run_in_thread", run_sync)(function, *arguments)


def _choose(calls: Iterable[OutgoingCall], client: Any, origin: str) -> list[OutgoingCall]:
    """Return the calls of the one service whose credentials the client has."""
    own = find_origin(origin or getattr(client, "base_url", ""))
    if not own[1]:
        raise ValueError("Name the service whose calls to send: resume(client, origin='https://api.example.com').")
    return [call for call in calls if find_origin(call.url) == own]


def _send(client: Any, call: OutgoingCall, options: dict[str, Any]) -> Any:
    """Send the stored request. The default parameters of the client are in its address already."""
    arguments = {"data": call.body, "params": dict.fromkeys(client.params)}  # requests drops a parameter that is None
    if hasattr(client, "build_request"):  # httpx has no way to drop one
        client, arguments = copy(client), {"content": call.body}
        client.params = {}
    return client.request(call.method, call.url, headers=dict(call.headers), **arguments, **options)


class SQLiteStore:
    """A file that only its owner can read. Each write is a transaction that is on disk when it ends."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._execute("CREATE TABLE IF NOT EXISTS calls (name TEXT PRIMARY KEY, created REAL, call, response)")

    def add(self, call: OutgoingCall) -> OutgoingCall:
        self._execute("INSERT OR IGNORE INTO calls VALUES (?, ?, ?, NULL)", call.name, call.created, _dump(call))
        return self._read("name = ?", call.name)[0]

    def finish(self, name: str, response: ReceivedResponse) -> ReceivedResponse:
        self._execute("UPDATE calls SET response = ? WHERE name = ? AND response IS NULL", _dump(response), name)
        return next((call.response for call in self._read("name = ?", name) if call.response), response)

    def open_calls(self) -> list[OutgoingCall]:
        return self._read("response IS NULL ORDER BY created")

    def forget(self, name: str) -> None:
        """Delete a call: its name is free for another one, with another key."""
        self._execute("DELETE FROM calls WHERE name = ?", name)

    def prune(self, age: float) -> None:
        """Delete the calls that have their response and are older than so many seconds."""
        self._execute("DELETE FROM calls WHERE response IS NOT NULL AND created < ?", time.time() - age)

    def _read(self, condition: str, *values: Any) -> list[OutgoingCall]:
        rows = self._execute(f"SELECT call, response FROM calls WHERE {condition}", *values)  # noqa: S608 - constant
        return [replace(_load(OutgoingCall, call), response=_load(ReceivedResponse, kept)) for call, kept in rows]

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        """Run one transaction on a connection of its own: threads and forked processes share none."""
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")  # syncs the directory too, so that no journal comes back
            return connection.execute(statement, values).fetchall()


def _dump(message: OutgoingCall | ReceivedResponse) -> str:
    return json.dumps({**asdict(message), "body": message.body.decode("latin-1")})


def _load(kind: Any, text: str | None) -> Any:
    members = text and json.loads(text)
    return members and kind(**{**members, "body": members["body"].encode("latin-1")})
