"""A request through Django's ASGI handler, whose client may go away at a moment that the test chooses."""

import asyncio
import json
from collections.abc import Callable
from threading import Event
from typing import Any

from django.core.handlers.asgi import ASGIHandler

from tests.kit.http import KEY, Person

PATIENCE = 60


class Moment:
    """Reached on one thread, awaited by the event loop; what reaches it may be held there."""

    def __init__(self) -> None:
        self.reached = Event()
        self.go_on = Event()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE), "the moment never came"

    async def may_go_on(self) -> None:
        """For a view."""
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)

    def hold(self, **kwargs: Any) -> None:
        """For a thread; also a receiver of signals."""
        self.reached.set()
        assert self.go_on.wait(PATIENCE), "nobody let it go on"


class Exchange:
    """One POST; `sent` is what the client received."""

    def __init__(self, path: str, person: Person, key: str = KEY, data: Any = None) -> None:
        self.body = json.dumps({} if data is None else data).encode()
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in person.client.cookies.items())
        headers = {"host": "testserver", "content-type": "application/json", "cookie": cookies, "idempotency-key": key}
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("testserver", 80),
            "client": ("127.0.0.1", 1),
            "headers": [
                *((name.encode(), value.encode()) for name, value in headers.items()),
                (b"content-length", str(len(self.body)).encode()),
            ],
        }
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self._asked = False

    async def run(self) -> None:
        await ASGIHandler()(self.scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        """Servers ignore what is sent to a client that is gone."""
        if not self.gone.is_set():
            self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def replayed(self) -> bool:
        return (b"Idempotency-Replayed", b"true") in self.sent[0]["headers"]


def posted(path: str, person: Person, **more: Any) -> Exchange:
    """A client that waits for its answer."""

    async def scenario() -> Exchange:
        exchange = Exchange(path, person, **more)
        await exchange.run()
        return exchange

    return asyncio.run(scenario())


def abandoned(path: str, person: Person, moment: Moment, then: Callable[[], None] | None = None) -> Exchange:
    """A client that goes away at the moment; whatever is held there goes on once the server has noticed."""

    async def scenario() -> Exchange:
        exchange = Exchange(path, person)
        task = asyncio.ensure_future(exchange.run())
        await moment.wait()
        exchange.gone.set()
        for _ in range(20):
            await asyncio.sleep(0)  # the handler sees the disconnect and cancels the view
        moment.go_on.set()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.done(), "the request never ended"
        task.result()
        return exchange

    return asyncio.run(scenario())
