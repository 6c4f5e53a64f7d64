"""A request of which the server got a part only claims nothing: the whole request runs under the same key."""

from __future__ import annotations

import json
import socket
from http.client import HTTPResponse

import pytest

from testproject.http import Answer, read
from tests.acceptance.subjects import EVERY, WHOLE, Subject, new, quoted, status_of
from tests.kit.processes import Site

BOUNDARY = "part"


def post_part(site: Site, path: str, key: str, body: bytes, sent: int, media_type: str = "application/json") -> Answer:
    """Send the first bytes of a body and end the connection there, as a proxy does whose client is gone."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Token alice-token\r\n"
        f"Idempotency-Key: {quoted(key)}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", site.service.port), timeout=30) as connection:
        connection.sendall(head.encode() + body[:sent])
        connection.shutdown(socket.SHUT_WR)
        with HTTPResponse(connection) as response:
            response.begin()
            return read(response)


@pytest.mark.parametrize("subject", EVERY, ids=str)
@pytest.mark.parametrize("missing", [1, 20])
def test_a_request_that_was_cut_leaves_its_key_to_the_whole_one(site: Site, subject: Subject, missing: int) -> None:
    key, account = new(), new()
    body = json.dumps(subject.order(account)).encode()
    cut = post_part(site, subject.path, key, body, len(body) - missing)
    assert cut.status == 400
    assert status_of(site, key) is None
    assert site.alice.post_bytes(subject.path, body, key=quoted(key), content_type="application/json").status < 300
    assert subject.effects(site, account) == 1


def upload(size: int) -> bytes:
    parts = (
        b'--part\r\nContent-Disposition: form-data; name="account"\r\n\r\nada\r\n'
        b'--part\r\nContent-Disposition: form-data; name="photo"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n',
        b"x" * size,
        b"\r\n--part--\r\n",
    )
    return b"".join(parts)


@pytest.mark.parametrize("size", [100, 12_000_000], ids=["kept in memory", "too large to keep"])
@pytest.mark.parametrize("missing", [3, 60])
def test_so_does_an_upload(site: Site, size: int, missing: int) -> None:
    key, body = new(), upload(size)
    cut = post_part(site, WHOLE.path, key, body, len(body) - missing, f"multipart/form-data; boundary={BOUNDARY}")
    assert cut.status == 400
    assert status_of(site, key) is None
