"""One HTTP exchange with the standard library, and whether anything was sent when it fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit


class NotConnected(OSError):
    """Nobody listens there: nothing was sent."""


class NoAnswer(OSError):
    """The request was sent, at least in part, and no whole answer came back."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def stored_in(told: Answer) -> Answer:
    """The stored response that an address shows."""
    shown, headers = told.json()["response"], Message()
    for name, value in shown["headers"]:
        headers[name] = value
    return Answer(shown["status"], headers, shown["body"].encode())


def exchange(
    method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None, timeout: float = 10
) -> Answer:
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.connect()
    except OSError as error:
        raise NotConnected(f"{parts.netloc}: {error}") from error
    try:
        connection.request(method, target, body or None, dict(headers or {}))
        return read(connection.getresponse())
    except (OSError, HTTPException) as error:
        raise NoAnswer(f"{method} {url}: {error!r}") from error
    finally:
        connection.close()


def read(response: HTTPResponse) -> Answer:
    return Answer(response.status, response.headers, response.read())


def exchange_json(
    method: str, url: str, data: Any = None, *, headers: Mapping[str, str] | None = None, timeout: float = 10
) -> Answer:
    body = b"" if data is None else json.dumps(data).encode()
    typed = {"Content-Type": "application/json", **(headers or {})}
    return exchange(method, url, body=body, headers=typed, timeout=timeout)
