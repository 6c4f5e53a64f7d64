"""A DATABASE_URL becomes Django's settings for that database."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

SQLITE_OPTIONS = {
    "timeout": 5,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
}
EXAMPLES = "sqlite:///db.sqlite3, postgresql://user:password@host:5432/name, mysql://user@host:3306/name"


def from_url(url: str, *, base: Path) -> dict[str, Any]:
    """Relative SQLite paths start at `base`; four slashes make an absolute one."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite(base / unquote(parts.path[1:]))
    if parts.scheme in ("postgresql", "postgres"):
        return {"ENGINE": "django.db.backends.postgresql", **server(parts)}
    if parts.scheme in ("mysql", "mariadb"):
        return mysql(parts)
    raise ValueError(f"DATABASE_URL {url!r} is of no known kind; it reads like one of: {EXAMPLES}")


def sqlite(path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Threads and processes share the test database, which one in memory cannot do.
    test = Path(tempfile.gettempdir(), f"test-{path.stem}-{os.getpid()}.sqlite3")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": SQLITE_OPTIONS,
        "TEST": {"NAME": str(test)},
    }


def mysql(parts: SplitResult) -> dict[str, Any]:
    if "MySQLdb" not in sys.modules and find_spec("MySQLdb") is None:
        stand_in_for_mysqldb()
    return {
        "ENGINE": "django.db.backends.mysql",
        **server(parts, charset="utf8mb4"),
        "TEST": {"CHARSET": "utf8mb4"},
    }


def stand_in_for_mysqldb() -> None:
    import pymysql

    pymysql.install_as_MySQLdb()


def server(parts: SplitResult, **options: str) -> dict[str, Any]:
    """A `host` in the query is the folder of a unix socket; everything else there is an option of the driver.

    `pooler=transaction` is Django's: behind such a pooler the next statement may be another session's.
    """
    query = dict(parse_qsl(parts.query))
    pooled = {"DISABLE_SERVER_SIDE_CURSORS": True} if query.pop("pooler", "") == "transaction" else {}
    return {
        **pooled,
        "NAME": unquote(parts.path[1:]),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": {**options, **query},
    }
