"""A PostgreSQL server for the moment, from a Python package: python -m testproject.postgres

It prints the server's DATABASE_URL on one line, runs until standard input closes, and leaves nothing behind.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from testproject.replication import own_postgresql

NAME = "testproject"


@contextmanager
def running() -> Iterator[str]:
    """Start a server that other users of this machine cannot reach, and yield its DATABASE_URL."""
    with own_postgresql(addresses="") as server:
        with server.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {NAME}")
        yield f"postgresql://postgres@/{NAME}?host={server.folder.parent}"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with running() as url:
            print(url, flush=True)
            sys.stdin.read()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
