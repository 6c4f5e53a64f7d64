"""Requests that no well-behaved client library would send."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from http.client import HTTPResponse

from testproject.http import Answer, read
from tests.kit.processes import Site


def post_lines(site: Site, path: str, lines: Sequence[bytes], body: bytes = b"one") -> Answer:
    """POST with these header lines, byte for byte, beside those that every request needs."""
    head = (b"POST %b HTTP/1.1" % path.encode(), b"Host: 127.0.0.1", b"Content-Length: %d" % len(body), *lines)
    with socket.create_connection(("127.0.0.1", site.service.port), timeout=30) as connection:
        connection.sendall(b"\r\n".join((*head, b"Connection: close", b"", body)))
        with HTTPResponse(connection) as response:
            response.begin()
            return read(response)


def with_key(*values: bytes) -> list[bytes]:
    """One header line per value."""
    return [b"Idempotency-Key: " + value for value in values]
