"""Calls that survive their process: each is on disk, with its key, before it is sent."""

import json
import os
import sqlite3
import time
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from django_idempotency.client.calls import CallStore, OutgoingCall, ReceivedResponse
from django_idempotency.client.errors import CallError, ChangedRequest, TooOld

KEPT_HEADERS: Final = ("content-type", "content-encoding", "accept")
RETENTION: Final = 23 * 3600  # seconds; services keep a response for 24 hours, if they do not say otherwise


@dataclass
class OnceBlock:
    """The block of `once`: the one call that is made in it."""

    outbox: "Outbox"
    name: str
    key: str = ""

    def enter(self, request: Any, body: bytes, key: str, *, is_given: bool) -> OutgoingCall:
        """Store the call before it is sent, or find it."""
        headers = {name: request.headers[name] for name in self.outbox.headers if name in request.headers}
        new = OutgoingCall(self.name, key, request.method, str(request.url), body, headers, time.time())
        call = self.outbox.store.add(new)
        self.key = call.key
        same = (call.method, call.url, call.body) == (new.method, new.url, new.body)
        if not same or (is_given and call.key != key):
            raise ChangedRequest(f"The call {self.name!r} was another request before. It was not sent.", key=call.key)
        if call.response is None and new.created - call.created > self.outbox.max_age:
            raise TooOld(f"The call {self.name!r} is too old: find out what happened, then delete it.", key=call.key)
        return call

    def finish(self, response: ReceivedResponse) -> ReceivedResponse | None:
        """Store the response. Return the one that is there, if it is another."""
        new = response.without_transport()
        kept = self.outbox.store.finish(self.name, new)
        return None if kept == new else kept


_BLOCK: Final[ContextVar[OnceBlock | None]] = ContextVar("idempotency_once", default=None)
current_block: Final = _BLOCK.get


@dataclass
class Resumed:
    """The result of an open call: the response, or the error that keeps the call open."""

    name: str
    response: Any = None
    error: Exception | None = None


class Outbox:
    """Keeps named calls in a SQLite file on a local disk, or in a `CallStore` of your own."""

    def __init__(
        self,
        store: CallStore | str | os.PathLike[str],
        *,
        headers: Collection[str] = KEPT_HEADERS,  # of the request, kept with it; the client adds all others again
        max_age: float = RETENTION,  # seconds after which an open call is not sent again
    ) -> None:
        self.store = SQLiteStore(Path(store)) if isinstance(store, str | os.PathLike) else store
        self.headers, self.max_age = headers, max_age
        self.run_in_thread: Callable[..., Coroutine[Any, Any, Any]] = getattr(self.store, "run_in_thread", to_thread)

    @contextmanager
    def once(self, name: str) -> Iterator[OnceBlock]:
        """Name the one POST or PATCH that is sent in this block. If it has its response already, nothing is sent."""
        block = OnceBlock(self, name)
        token = _BLOCK.set(block)
        try:
            yield block
        finally:
            _BLOCK.reset(token)
        if not block.key:
            raise CallError(f"No request of the call {name!r} went through an idempotent transport or adapter.")

    def resume(self, client: Any) -> Iterator[Resumed]:
        """Send every open call again, with an httpx.Client or requests.Session that adds the credentials."""
        for call in self.store.open_calls():
            with self._resume(call) as resumed:
                resumed.response = client.request(**_arguments(client, call))
            yield resumed

    async def aresume(self, client: Any) -> AsyncIterator[Resumed]:
        """Do what `resume` does, with an httpx.AsyncClient."""
        for call in await self.run_in_thread(lambda: list(self.store.open_calls())):
            with self._resume(call) as resumed:
                resumed.response = await client.request(**_arguments(client, call))
            yield resumed

    @contextmanager
    def _resume(self, call: OutgoingCall) -> Iterator[Resumed]:
        resumed = Resumed(call.name)
        try:
            with self.once(call.name):
                yield resumed
        except Exception as error:  # noqa: BLE001 - told with its call: the next ones are independent of it
            resumed.error = error


def _arguments(client: Any, call: OutgoingCall) -> dict[str, Any]:
    body = "content" if hasattr(client, "build_request") else "data"  # httpx has the method, requests has not
    return {"method": call.method, "url": call.url, body: call.body, "headers": dict(call.headers)}


class SQLiteStore:
    """A file that only its owner can read. Each write is a transaction that is on disk when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._execute("CREATE TABLE IF NOT EXISTS calls (name TEXT PRIMARY KEY, created REAL, call, response)")

    def add(self, call: OutgoingCall) -> OutgoingCall:
        insert = "INSERT INTO calls (name, created, call) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self._execute(insert, call.name, call.created, _dump(call))
        (found,) = self._read("name = ?", call.name)
        return found

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
        return [
            OutgoingCall(**_load(call) | {"response": response and ReceivedResponse(**_load(response))})
            for call, response in rows
        ]

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        """Run one transaction on a connection of its own: threads and forked processes share none."""
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")  # syncs the directory too, so that no journal comes back
            return connection.execute(statement, values).fetchall()


def _dump(message: OutgoingCall | ReceivedResponse) -> str:
    return json.dumps({**asdict(message), "body": message.body.decode("latin-1")})


def _load(text: str) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(text)
    return {**members, "body": members["body"].encode("latin-1")}
