"""How what a key costs grows: python -m benchmarks.growth [--rows 1000000]

Asks the views of `python -m benchmarks` with more clients, larger bodies, a larger table, more routes and more signal
receivers. Prints a table, each ratio one to the bare view in the same rounds, and draws docs/images/growth.svg.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final
from uuid import uuid4

import psycopg

from benchmarks.charts import Chart, draw
from benchmarks.views import BODY, PLAIN, Figures, describe_machine, run_round, serve, store_known_key
from testproject.servers import ROOT, prepare_database

KINDS: Final = ("bare", "leased", "atomic", "replay")
COLOURS: Final = {"leased": "line-1", "atomic": "line-3", "replay": "line-2"}
PICTURE: Final = ROOT / "docs" / "images" / "growth.svg"
REQUESTS: Final = 256  # of all clients, in one round

FILL: Final = """
    INSERT INTO idempotency_key (id, scope, key, status, fingerprint, attempt_token, lease_seconds, grace_seconds,
        retention_seconds, created_at, response_status, response_headers, response_body, completed_at, expires_at)
    SELECT gen_random_uuid(), 'user:' || n %% 50000, gen_random_uuid(), 'completed', 'v1::' || md5(n::text),
        gen_random_uuid(), 300, 300, 86400, now(), 201, '[]', '{"id": 1}'::bytea, now(), now() + interval '1 day'
    FROM generate_series(1, %s) AS n
"""


@dataclass(frozen=True)
class Point:
    """What was measured at one place of an axis."""

    axis: str
    label: str
    figures: dict[str, Figures]

    def ratio(self, kind: str) -> float:
        return self.figures[kind].ratio(self.figures["bare"])


@dataclass(frozen=True)
class Setup:
    """The database, the folder of the servers, and how long to measure."""

    url: str
    folder: Path
    rounds: int

    def measure(self, axis: str, label: str, *, clients: int = 8, body: bytes = BODY, **environment: str) -> Point:
        """Ask for each kind in turn; the first round only warms up."""
        figures = {kind: Figures() for kind in KINDS}
        kinds = {**PLAIN, "replay": replace(PLAIN["replay"], key=str(uuid4()))}
        with ExitStack() as stack:
            server = stack.enter_context(serve(self.folder, self.url, environment))
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(clients))
            store_known_key(server, kinds["replay"], body)
            for number in range(self.rounds + 1):
                for name, found in figures.items():
                    measured = found if number else Figures()
                    run_round(pool, server, kinds[name], measured, clients, max(2, REQUESTS // clients), body)
        print(f"  {axis}: {label}", file=sys.stderr, flush=True)
        return Point(axis, label, figures)

    def fill(self, rows: int) -> None:
        """Add completed records until there are so many."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute("SELECT count(*) FROM idempotency_key").fetchone()
            connection.execute(FILL, (max(0, rows - found[0] if found else rows),))
            connection.execute("VACUUM ANALYZE idempotency_key")
            connection.execute("CHECKPOINT")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="size of the largest table")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    url = os.environ["DATABASE_URL"]
    prepare_database(url)
    with tempfile.TemporaryDirectory() as folder:
        points = measure_all(Setup(url, Path(folder), options.rounds), options.rows)
    print(describe_machine(url), end="\n\n")
    report(points)
    PICTURE.write_text(draw_growth(points))
    print(f"\n{PICTURE.relative_to(ROOT)} is drawn.")
    return 0


def measure_all(setup: Setup, most_rows: int) -> list[Point]:
    points = [setup.measure("clients", str(clients), clients=clients) for clients in (1, 8, 32, 128)]
    for size, label in ((1024, "1 KB"), (10 * 1024, "10 KB"), (100 * 1024, "100 KB"), (1024 * 1024, "1 MB")):
        points.append(setup.measure("body", label, body=b'{"amount": 1, "note": "%s"}' % (b"x" * (size - 27))))
    points += [setup.measure("routes", str(count), BENCHMARK_ROUTES=str(count)) for count in (1, 50, 200)]
    points += [setup.measure("receivers", str(count), BENCHMARK_RECEIVERS=str(count)) for count in (0, 5)]
    for rows in (10_000, 100_000, 1_000_000, 10_000_000, 50_000_000):
        if rows <= most_rows:
            setup.fill(rows)
            points.append(setup.measure("rows", f"{rows:,}"))
    return points


def report(points: list[Point]) -> None:
    """Print a Markdown table: the ratio to the bare view, then p50 and p99 in milliseconds."""
    columns = ["bare p50 / p99", *(f"{kind}, p50 / p99" for kind in KINDS[1:])]
    print("| | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for point in points:
        cells = [f"{found.latency(50):.1f} / {found.latency(99):.0f}" for found in point.figures.values()]
        ratios = ["", *(f"{point.ratio(kind):.2f}, " for kind in KINDS[1:])]
        line = " | ".join(ratio + cell for ratio, cell in zip(ratios, cells, strict=True))
        print(f"| {point.axis} {point.label} | {line} |")


def draw_growth(points: list[Point]) -> str:
    """Draw one chart for each axis: the throughput as a ratio to the bare view's."""
    axes = [(axis, list(found)) for axis, found in groupby(points, key=lambda point: point.axis)]
    charts = [
        Chart(
            axis,
            [point.label for point in found],
            {kind: [point.ratio(kind) for point in found] for kind in COLOURS},
            marks=(0, 1, 2),
            reference=1,
        )
        for axis, found in axes
    ]
    return draw("Throughput as a ratio to the bare view", COLOURS, charts)


if __name__ == "__main__":
    sys.exit(main())
