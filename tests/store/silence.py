"""A way to the database that can fall silent: connections stay open and nothing gets through any more."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from tests.kit.cable import Cable, laid
from tests.kit.databases import another_alias

SERVER = {"postgresql": 5432, "mysql": 3306}


def connect_to_server() -> socket.socket:
    configured = connection.settings_dict
    host, port = configured["HOST"] or "127.0.0.1", int(configured["PORT"] or SERVER[connection.vendor])
    if host.startswith("/"):
        way = socket.socket(socket.AF_UNIX)
        way.connect(f"{host}/.s.PGSQL.{port}")
        return way
    return socket.create_connection((host, port))


@contextmanager
def silenceable(alias: str) -> Iterator[Cable]:
    """The run's database under another name, over a way that can fall silent."""
    with laid(connect_to_server) as way, another_alias(alias, HOST="127.0.0.1", PORT=str(way.port)):
        yield way
        way.cut()  # before the connection is closed: its goodbye would wait for ever
