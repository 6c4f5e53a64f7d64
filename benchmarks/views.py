"""The throughput of one view: bare, protected by hand, and protected by the package.

Gunicorn serves the view on the database that DATABASE_URL names. Clients ask in short rounds that alternate between all
kinds, so whatever else the machine does happens to all of them. What is written by hand speaks to PostgreSQL alone, so
other databases are measured without it and have no targets.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final
from uuid import uuid4

import django
import psycopg

from testproject.servers import Server, free_port, prepare_database, start

REQUESTS: Final = 60  # each client's, in one round
BODY: Final = b'{"amount": 1}'
REQUEST: Final = (
    b"POST /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Idempotency-Key: %s\r\n\r\n%s"
)
TICK: Final = 1_000_000 / os.sysconf("SC_CLK_TCK")  # microseconds


@dataclass(frozen=True)
class Kind:
    """One way to answer the request, what it is compared with, and the ratio that is aimed at."""

    path: str
    bare: str
    floor: str | None = None
    target: float | None = None
    key: str | None = None  # a known key: every request is a replay
    prepared: bool = False


PLAIN: Final = {
    "bare": Kind("bare", "bare"),
    "leased by hand": Kind("leased/by-hand", "bare"),
    "leased": Kind("leased", "bare", "leased by hand", 0.92),
    "leased, prepared": Kind("leased", "bare", "leased by hand", 1.0, prepared=True),
    "atomic by hand": Kind("atomic/by-hand", "bare"),
    "atomic": Kind("atomic", "bare", "atomic by hand", 0.92),
    "atomic, prepared": Kind("atomic", "bare", "atomic by hand", 1.0, prepared=True),
    "replay by hand": Kind("leased/by-hand", "bare", key=str(uuid4())),
    "replay": Kind("leased", "bare", "replay by hand", 0.90, key=str(uuid4())),
    "replay, prepared": Kind("leased", "bare", "replay by hand", 1.0, key=str(uuid4()), prepared=True),
}
REST: Final = {
    "DRF bare": Kind("rest/bare", "DRF bare"),
    "DRF leased by hand": Kind("rest/leased/by-hand", "DRF bare"),
    "DRF leased": Kind("rest/leased", "DRF bare", "DRF leased by hand", 0.92),
    "DRF atomic by hand": Kind("rest/atomic/by-hand", "DRF bare"),
    "DRF atomic": Kind("rest/atomic", "DRF bare", "DRF atomic by hand", 0.92),
    "DRF replay by hand": Kind("rest/leased/by-hand", "DRF bare", key=str(uuid4())),
    "DRF replay": Kind("rest/leased", "DRF bare", "DRF replay by hand", 0.90, key=str(uuid4())),
}


@dataclass
class Figures:
    """What was measured of one kind, round by round."""

    rates: list[float] = field(default_factory=list)  # requests per second
    times: list[float] = field(default_factory=list)  # processor time of the workers, in microseconds a request
    latencies: list[float] = field(default_factory=list)  # seconds

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def time(self) -> float:
        return statistics.median(self.times)

    def latency(self, percent: int) -> float:
        """Return the latency, in milliseconds, that so many per cent of the requests stayed under."""
        return 1000 * statistics.quantiles(self.latencies, n=100)[percent - 1]

    def ratio(self, other: Figures) -> float:
        """Return the median of the rounds' own ratios: what slowed one round down is in both its halves."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.rates, other.rates, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rest", action="store_true", help="the same with views of Django REST framework")
    options = parser.parse_args()
    url = os.environ["DATABASE_URL"]
    kinds = REST if options.rest else PLAIN
    if not url.startswith("postgres"):
        kinds = {name: each for name, each in without_targets(kinds).items() if "by hand" not in name}
    prepare_database(url)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            prepared: stack.enter_context(serve(Path(folder), url, {}, prepared=prepared))
            for prepared in {kind.prepared for kind in kinds.values()}
        }
        print(describe_machine(url))
        found = measure(servers, kinds, options.rounds, options.clients)
    return 0 if report(found, kinds, options.clients) else 1


def without_targets(kinds: dict[str, Kind]) -> dict[str, Kind]:
    return {name: replace(kind, floor=None, target=None) for name, kind in kinds.items() if not kind.prepared}


@contextmanager
def serve(
    folder: Path, url: str, more: Mapping[str, str], *, prepared: bool = False, python: str = sys.executable
) -> Iterator[Server]:
    """Serve the views with gunicorn, with these environment variables besides its own."""
    port = free_port()
    environment = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "testproject.settings", **more}
    server = start(
        "prepared" if prepared else "gunicorn",
        port,
        *("gunicorn", "benchmarks.serving:application", "--bind", f"127.0.0.1:{port}", "--no-control-socket"),
        *("--worker-class", "gthread", "--workers", "2", "--threads", "8", "--keep-alive", "60"),
        folder=folder,
        environment={**environment, "IDEMPOTENCY_PREPARED_STATEMENTS": "1"} if prepared else environment,
        python=python,
    )
    try:
        yield server
    finally:
        server.stop()


def measure(servers: dict[bool, Server], kinds: dict[str, Kind], rounds: int, clients: int) -> dict[str, Figures]:
    """Ask for every kind once a round; the first round only warms up."""
    found: dict[str, Figures] = {name: Figures() for name in kinds}
    for kind in kinds.values():
        store_known_key(servers[kind.prepared], kind)
    with multiprocessing.get_context("fork").Pool(clients) as pool:
        for number in range(rounds + 1):
            for name, kind in kinds.items():
                run_round(pool, servers[kind.prepared], kind, found[name] if number else Figures(), clients)
            if sys.stderr.isatty():
                print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return found


def store_known_key(server: Server, kind: Kind, body: bytes = BODY) -> None:
    """Make the response that replays get."""
    if kind.key:
        ask((server.port, kind.path, kind.key, 1, body))


def run_round(
    pool: Pool, server: Server, kind: Kind, figures: Figures, clients: int, count: int = REQUESTS, body: bytes = BODY
) -> None:
    """Let each client send so many requests."""
    requests = clients * count
    used, began = processor_time(server), time.monotonic()
    latencies = pool.map(ask, [(server.port, kind.path, kind.key, count, body)] * clients, chunksize=1)
    figures.rates.append(requests / (time.monotonic() - began))
    figures.times.append((processor_time(server) - used) / requests)
    figures.latencies.extend(each for client in latencies for each in client)


def processor_time(server: Server) -> float:
    """Return the processor time that the server's workers have used, in microseconds."""
    root = server.process.pid
    workers = Path(f"/proc/{root}/task/{root}/children").read_text().split()
    fields = (Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split() for worker in workers)
    return TICK * sum(int(each[11]) + int(each[12]) for each in fields)


def ask(task: tuple[int, str, str | None, int, bytes]) -> list[float]:
    """Be a client that costs little itself: it shares the machine with what it measures. Return its latencies."""
    port, path, key, count, body = task
    latencies = []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as answers:
        for _ in range(count):
            began = time.monotonic()
            connection.sendall(REQUEST % (path.encode(), len(body), (key or str(uuid4())).encode(), body))
            status = answers.readline()
            length = None
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            if length is not None:
                answers.read(length)
            else:  # no middleware gave the answer a length
                while chunk := int(answers.readline(), 16):
                    answers.read(chunk + 2)
                answers.readline()
            latencies.append(time.monotonic() - began)
            if b" 201 " not in status:
                raise RuntimeError(f"{path} answered {status!r}")
    return latencies


def report(found: dict[str, Figures], kinds: dict[str, Kind], clients: int) -> bool:
    """Print the table. True if every target is met."""
    rounds = len(next(iter(found.values())).rates)
    print(f"\n{clients} clients, medians of {rounds} rounds; processor time of the workers in microseconds a request\n")
    print(f"{'':20}{'requests/s':>11}{'of bare':>9}{'by hand':>9}{'target':>8}{'processor':>11}", end="")
    print(f"{'above bare, of by hand':>24}")
    met = True
    for name, kind in kinds.items():
        figures, bare = found[name], found[kind.bare]
        line = f"{name:20}{figures.rate:11,.0f}{figures.ratio(bare):9.2f}"
        if kind.floor is None or kind.target is None:
            print(f"{line}{'':17}{figures.time:11.0f}")
            continue
        floor = found[kind.floor]
        ratio = figures.ratio(floor)
        excess = (
            f"{figures.time / floor.time:18.2f} in all"
            if kind.key
            else f"{(figures.time - bare.time) / (floor.time - bare.time):24.2f}"
        )
        print(f"{line}{ratio:9.2f}{kind.target:8.2f}{figures.time:11.0f}{excess}")
        met = met and ratio >= kind.target
    if any(kind.target for kind in kinds.values()):
        print("\nEvery target is met." if met else "\nA target is missed.")
    return met


def describe_machine(url: str) -> str:
    database = url.partition(":")[0]
    if database.startswith("postgres"):
        with psycopg.connect(url) as connection:
            version = connection.info.server_version
            database = f"PostgreSQL {version // 10000}.{version % 10000}"
    return (
        f"{database}, Python {platform.python_version()}, Django "
        f"{django.__version__}, psycopg {psycopg.__version__}, {os.cpu_count()} processors ({platform.machine()})"
    )
