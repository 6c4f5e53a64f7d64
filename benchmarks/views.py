"""What protection costs a view: python -m benchmarks.views [--rounds N]

Serves one view with gunicorn on the PostgreSQL server that DATABASE_URL names, bare, leased and atomic, and lets 8
clients ask in short rounds that alternate between them. Prints the throughput of each and its ratio to the bare view.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from uuid import uuid4

from testproject.servers import free_port, prepare_database, start

CLIENTS: Final = 8
REQUESTS: Final = 60  # each client's, in one round
KINDS: Final = {"bare": "/bare", "leased": "/leased", "atomic": "/atomic", "replay": "/leased"}
REQUEST: Final = (
    b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 13\r\n"
    b'Idempotency-Key: %s\r\n\r\n{"amount": 1}'
)
AIMS: Final = {"leased": 0.65, "atomic": 0.75, "replay": 1.5}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.views", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        print("This needs a PostgreSQL server: set DATABASE_URL=postgresql://user@host:5432/name", file=sys.stderr)
        return 2
    prepare_database(url)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = start(
            "gunicorn",
            port,
            *("gunicorn", "benchmarks.serving:application", "--bind", f"127.0.0.1:{port}", "--no-control-socket"),
            *("--worker-class", "gthread", "--workers", "2", "--threads", "8", "--keep-alive", "60"),
            folder=Path(folder),
            environment={"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        )
        try:
            report(measure(port, rounds))
        finally:
            server.stop()
    return 0


def measure(port: int, rounds: int) -> dict[str, list[float]]:
    """Requests per second of each kind, round by round; the first round only warms up."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    known = str(uuid4())
    ask((port, "/leased", known, 1))
    with multiprocessing.get_context("fork").Pool(CLIENTS) as pool:
        for number in range(rounds + 1):
            for kind, path in KINDS.items():
                key = known if kind == "replay" else ""
                began = time.monotonic()
                pool.map(ask, [(port, path, key, REQUESTS)] * CLIENTS, chunksize=1)
                if number:
                    found[kind].append(CLIENTS * REQUESTS / (time.monotonic() - began))
            if sys.stderr.isatty():
                print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
    return found


def ask(task: tuple[int, str, str, int]) -> None:
    """A client that costs little itself: it shares the machine with what it measures."""
    port, path, key, count = task
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as answers:
        for _ in range(count):
            connection.sendall(REQUEST % (path.encode(), (key or str(uuid4())).encode()))
            status = answers.readline()
            while answers.readline() != b"\r\n":
                pass
            while chunk := int(answers.readline(), 16):  # no middleware gave the answer a length
                answers.read(chunk + 2)
            answers.readline()
            if b" 201 " not in status:
                raise RuntimeError(f"{path} answered {status!r}")


def report(found: dict[str, list[float]]) -> None:
    bare = statistics.median(found["bare"])
    print(f"\n{CLIENTS} clients, medians of {len(found['bare'])} rounds")
    print(f"{'':8}{'requests/s':>12}{'ratio':>8}{'aim':>8}")
    for kind, rates in found.items():
        aim = f"{AIMS[kind]:8.2f}" if kind in AIMS else " " * 8
        rate = statistics.median(rates)
        print(f"{kind:8}{rate:12,.0f}{rate / bare:8.2f}{aim}")


if __name__ == "__main__":
    sys.exit(main())
