"""When a cache in front of completed responses pays: python -m benchmarks.cache [--rounds N]

Needs PostgreSQL in DATABASE_URL and Redis in CACHE_URL, on this machine. Two gunicorns serve the same view on the same
database, one of them with the cache. Clients ask them in short rounds that alternate, with the database beside the
servers and 2 ms away.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from benchmarks.views import BODY, ask
from testproject.servers import Server, free_port, prepare_database, start

CLIENTS: Final = (1, 8, 32)
SECONDS: Final = 0.5  # of one measurement, about
SERVERS: Final = ("table", "cache")
KINDS: Final = ("replay", "new key")
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """What one server did with one kind of request."""

    rates: list[float] = field(default_factory=list)  # requests per second, round by round
    requests: int = 0
    database: float = 0.0  # seconds of processor time
    workers: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    url, cache_url = os.environ.get("DATABASE_URL", ""), os.environ.get("CACHE_URL", "")
    if not url.startswith("postgres") or not cache_url.startswith("redis"):
        print("Set DATABASE_URL=postgresql://user@host:5432/name and CACHE_URL=redis://host:6379/5", file=sys.stderr)
        return 2
    prepare_database(url)
    for name, milliseconds in (("local", 0.0), ("2 ms away", 2.0)):
        with ExitStack() as stack:
            seen = stack.enter_context(at_a_distance(url, milliseconds)) if milliseconds else url
            servers = {
                "table": stack.enter_context(served(seen, "")),
                "cache": stack.enter_context(served(seen, cache_url)),
            }
            report(name, measure(servers, url, rounds))
    return 0


@contextmanager
def at_a_distance(url: str, milliseconds: float) -> Iterator[str]:
    """The same database at the other end of a long line."""
    parts = urlsplit(url)
    command = [sys.executable, "-m", "benchmarks.delay", parts.hostname or "", str(parts.port), str(milliseconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as line:  # noqa: S603 - every word stands here
        assert line.stdout is not None  # noqa: S101 - for the type checker
        port = int(line.stdout.readline())
        yield urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        line.kill()


@contextmanager
def served(url: str, cache_url: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = start(
            "gunicorn",
            port,
            *("gunicorn", "benchmarks.cached:application", "--bind", f"127.0.0.1:{port}", "--no-control-socket"),
            *("--worker-class", "gthread", "--workers", "2", "--threads", "16", "--keep-alive", "60"),
            folder=Path(folder),
            environment={
                "DATABASE_URL": url,
                "CACHE_URL": cache_url,
                "DJANGO_SETTINGS_MODULE": "testproject.settings",
                "DATABASE_CONN_MAX_AGE": "3600",
            },
        )
        try:
            yield server
        finally:
            server.stop()


def measure(servers: dict[str, Server], url: str, rounds: int) -> dict[tuple[int, str, str], Figures]:
    """Figures by number of clients, kind of request and server. The first round only warms up."""
    found = {each: Figures() for each in product(CLIENTS, KINDS, SERVERS)}
    known = str(uuid4())
    for server in servers.values():  # the first response, and the one that fills the cache
        ask((server.port, "leased", known, 2, BODY))
    with psycopg.connect(url, autocommit=True) as connection:
        for clients in CLIENTS:
            with multiprocessing.get_context("fork").Pool(clients) as pool:
                count = dict.fromkeys(product(KINDS, SERVERS), 10)
                for number, kind in product(range(rounds + 1), KINDS):
                    for name in random.sample(SERVERS, len(SERVERS)):
                        key, requests = known if kind == "replay" else "", count[kind, name]
                        server, before = servers[name], load(connection, servers[name])
                        began = time.monotonic()
                        pool.map(ask, [(server.port, "leased", key or None, requests, BODY)] * clients, chunksize=1)
                        rate = clients * requests / (time.monotonic() - began)
                        count[kind, name] = max(5, int(rate * SECONDS / clients))
                        if number:
                            after = load(connection, server)
                            note(found[clients, kind, name], rate, before, after, clients * requests)
    return found


def load(connection: psycopg.Connection[Any], server: Server) -> tuple[float, float]:
    """Return the processor time of the database's sessions and of the server, until now."""
    sessions = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = CURRENT_DATABASE() AND pid <> PG_BACKEND_PID()"
    ).fetchall()
    return processor_time([pid for (pid,) in sessions]), processor_time(family(server.process.pid))


def family(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *map(int, children)]


def processor_time(processes: list[int]) -> float:
    """Seconds, in user and in kernel mode."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def note(figures: Figures, rate: float, before: tuple[float, float], after: tuple[float, float], requests: int) -> None:
    figures.rates.append(rate)
    figures.requests += requests
    figures.database += after[0] - before[0]
    figures.workers += after[1] - before[1]


def report(name: str, found: dict[tuple[int, str, str], Figures]) -> None:
    """Print medians. A ratio is the median of the rounds' own: other load on the machine is in both their halves."""
    print(f"\nDatabase {name}. Processor time in microseconds per request")
    print(f"{'clients':>7} {'request':8} {'from':6}{'requests/s':>11}{'ratio':>7}{'database':>10}{'worker':>8}")
    for (clients, kind, server), figures in found.items():
        floor = found[clients, kind, "table"].rates
        ratio = statistics.median(ours / table for ours, table in zip(figures.rates, floor, strict=True))
        rate = statistics.median(figures.rates)
        database, workers = (each / figures.requests * 1e6 for each in (figures.database, figures.workers))
        print(f"{clients:7} {kind:8} {server:6}{rate:11,.0f}{ratio:7.2f}{database:10,.0f}{workers:8,.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
