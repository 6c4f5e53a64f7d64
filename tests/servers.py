"""Find the databases, engines and brokers that the tests can use: python -m tests.servers DATABASE ...

It prints one line of JSON and runs until standard input closes. Then it stops every server that it started.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from testproject.servers import ROOT
from tests.engines import ENGINES, Engine, NotHere

DATABASE = "idempotency_" + hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]  # each checkout has its own
SCHEMES = {"sqlite": ["sqlite"], "postgresql": ["postgresql", "postgres"], "mariadb": ["mysql", "mariadb"]}
OLDEST_POSTGRESQL = 150000
# The URL of a local broker, what to send to it, and how its reply begins.
BROKERS = {
    "REDIS_URL": ("redis://127.0.0.1:6379/0", b"PING\r\n", b"+PONG"),
    "AMQP_URL": ("amqp://guest:guest@127.0.0.1:5672//", b"AMQP\0\0\x09\x01", b"\x01"),
}
MISSING = {
    "postgresql": "no DATABASE_URL, no trusted server at 127.0.0.1:5432, and none could be started",
    "mariadb": "no DATABASE_URL, and root without a password is not let in at 127.0.0.1:3306",
    **dict.fromkeys(BROKERS, "not set, and nothing answers locally"),
}


def find_sqlite(_stack: ExitStack) -> str:
    return "sqlite:///var/test.sqlite3"


def find_postgresql(stack: ExitStack) -> str | None:
    """Return the URL of a local server that needs no password, or start one that stops with the stack."""
    for user in (getpass.getuser(), "postgres"):
        if can_create_databases(url := f"postgresql://{user}@127.0.0.1:5432/{DATABASE}"):
            return url
    command = [sys.executable, "-m", "testproject.postgres"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.enter_context(server)
    return next(iter(server.stdout or ()), "").strip() or None


def can_create_databases(url: str) -> bool:
    query = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
    try:
        with psycopg.connect(url, connect_timeout=2, dbname="postgres") as connection:
            row = connection.execute(query).fetchone()
            return bool(row and row[0]) and connection.info.server_version >= OLDEST_POSTGRESQL
    except psycopg.Error:
        return False


def find_mariadb(_stack: ExitStack) -> str | None:
    try:
        pymysql.connect(host="127.0.0.1", user="root", connect_timeout=2).close()
    except Exception:  # noqa: BLE001 # the driver raises all kinds of errors at servers it cannot talk to
        return None
    # Otherwise the driver reads all certificates of the machine for each connection.
    return f"mysql://root@127.0.0.1:3306/{DATABASE}?ssl_disabled=true"


def find_broker(variable: str) -> str | None:
    """Return the URL in this variable, or that of a local broker that answers as its kind does."""
    url, greeting, reply = BROKERS[variable]
    if os.environ.get(variable):
        return os.environ[variable]
    try:
        with socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=2) as connection:
            connection.sendall(greeting)
            return url if connection.recv(16).startswith(reply) else None
    except OSError:
        return None


FINDERS: dict[str, Callable[[ExitStack], str | None]] = {
    "sqlite": find_sqlite,
    "postgresql": find_postgresql,
    "mariadb": find_mariadb,
}


def find(name: str, stack: ExitStack) -> Engine:
    """Start an engine, or return a database: the one of DATABASE_URL if it is of this kind, or else a local one."""
    if name in ENGINES:
        return stack.enter_context(ENGINES[name]())
    given = os.environ.get("DATABASE_URL", "")
    url = given if given.partition(":")[0] in SCHEMES[name] else FINDERS[name](stack)
    if url is None:
        raise NotHere(MISSING[name])
    return Engine(url)


def main(names: list[str]) -> None:
    with ExitStack() as stack:
        databases: dict[str, dict[str, Any]] = {}
        missing = []
        for name in names:
            try:
                databases[name] = asdict(find(name, stack))
            except NotHere as reason:
                missing.append(f"{name}: {reason}")
            except Exception as error:  # noqa: BLE001 # an engine may fail in any way, and the others are to be found
                missing.append(f"{name}: it could not be started: {error}")
        brokers = {variable: url for variable in BROKERS if (url := find_broker(variable))}
        missing += [f"{variable}: {MISSING[variable]}" for variable in BROKERS if variable not in brokers]
        # From here on a Ctrl-C is for the tests: the servers stop after them, when standard input closes.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(json.dumps({"databases": databases, "brokers": brokers, "missing": missing}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
