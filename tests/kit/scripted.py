"""A service that answers as a test has written down, and remembers what it got."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


@dataclass(frozen=True)
class Scripted:
    """One response; `cut` resets the connection after so many bytes of the body."""

    status: int = 201
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"id": 1}'
    cut: int | None = None


def problem(status: int, code: str, headers: Mapping[str, str] | None = None, **members: Any) -> Scripted:
    typed = {"Content-Type": "application/problem+json", **(headers or {})}
    return Scripted(status, typed, json.dumps({"code": f"idempotency_{code}", "detail": "why", **members}).encode())


class ScriptedService(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.script: list[Scripted] = []
        self.got: list[Request] = []
        self.on_request: Callable[[Request], object] = lambda request: None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up here on purpose."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedService

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        self.server.got.append(request)
        self.server.on_request(request)
        script = self.server.script
        answer = script.pop(0) if len(script) > 1 else script[0]  # the last one is given for ever
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[: answer.cut])
        if answer.cut is not None:
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_PUT = do_OPTIONS = respond

    def log_message(self, format: str, *args: Any) -> None:
        """What was got is the log."""


@contextmanager
def scripted_service() -> Iterator[ScriptedService]:
    service = ScriptedService()
    thread = Thread(target=service.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()
