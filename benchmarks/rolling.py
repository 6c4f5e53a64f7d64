"""A deployment that is half done: python -m benchmarks.rolling --previous COMMIT [--seconds N] [--json]

Needs PostgreSQL in DATABASE_URL and the history of the repository. The package of an earlier commit and that of this
checkout are built and installed apart, and two gunicorns serve the same views with them on one database. Clients send
each key to both at the same time, and then once more. Fails if a key is executed twice or gets two responses.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

import psycopg

from benchmarks.clients import send
from benchmarks.views import serve
from testproject.http import Answer
from testproject.servers import ROOT, prepare_database

PAIRS: Final = 4  # of clients, one for each server
VIEWS: Final = ("outside", "atomic")
ENTRIES: Final = "SELECT COUNT(*) FROM payments_ledgerentry WHERE reference = 'benchmark'"

Answers: TypeAlias = list[Answer | None]


@dataclass
class Figures:
    """What the keys of one view met."""

    view: str
    keys: int = 0
    executed: int = 0  # runs of the view
    executed_by: dict[str, int] = field(default_factory=dict)  # as the responses say which code ran
    met: int = 0  # keys whose second request came while the first one was running
    differing: int = 0  # keys that later got anything but one response, in the same bytes from both versions

    @property
    def is_right(self) -> bool:
        """True if each key was executed once: each has a response, so none was executed never."""
        both_ran = self.view != "outside" or len(self.executed_by) == 2
        return self.executed == self.keys > 0 and not self.differing and both_ran


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolling", description=__doc__)
    parser.add_argument("--previous", required=True, metavar="COMMIT", help="whose package runs beside today's")
    parser.add_argument("--seconds", type=float, default=10, help="how long clients send to each view")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        parser.error("set DATABASE_URL=postgresql://user@host:5432/name")
    prepare_database(url)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, services = Path(name), list[str]()
        for version, source in (("previous", check_out(options.previous, folder)), ("today", ROOT)):
            own = folder / version
            python = install(source, own)
            # Celery puts the current folder first on the path: it must not be this checkout.
            path = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1", "GUNICORN_CMD_ARGS": f"--chdir {own}"}
            environment = {"BENCHMARK_LEDGER": str(folder / "ledger"), "IDEMPOTENCY_CLAIM_LIMIT_SECONDS": "30"}
            services.append(stack.enter_context(serve(own, url, environment | path, python=python)).url)
        found = [measure(view, services, url, folder / "ledger", options.seconds) for view in VIEWS]
    print(json.dumps(list(map(asdict, found))) if options.json else "\n".join(map(describe, found)))
    return 0 if all(each.is_right for each in found) else 1


def check_out(commit: str, folder: Path) -> Path:
    """Return a folder with the files of the commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)  # noqa: S603, S607
    if archive.returncode:
        sys.exit(f"{commit} is not in the history of this clone: fetch it, for example with git fetch --unshallow.")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder / "source", filter="data")
    return folder / "source"


def install(source: Path, folder: Path) -> str:
    """Build the package, install it into an environment of its own, and return the environment's Python.

    Everything else comes from this Python's packages, and the views from this checkout, which comes last on the path.
    """
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=source, check=True, capture_output=True)  # noqa: S603
    venv.create(folder / "venv")
    python = str(folder / "venv" / "bin" / "python")
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)  # noqa: S603
    packages = sysconfig.get_path("purelib", "venv", {"base": str(folder / "venv")})
    Path(packages, "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return python


def measure(view: str, services: Sequence[str], url: str, ledger: Path, seconds: float) -> Figures:
    """Send new keys to both services for so long."""
    ledger.touch()
    until, figures, before = time.monotonic() + seconds, Figures(view), count_runs(view, url, ledger)
    with ThreadPoolExecutor(2 * PAIRS) as pool, ThreadPoolExecutor(PAIRS) as pairs:

        def send_to_both(key: str) -> Answers:
            return list(pool.map(lambda service: send(f"{service}/{view}", key), services))

        def be_pair(_number: int) -> list[tuple[Answers, Answers]]:
            found = []
            while time.monotonic() < until:
                key = str(uuid4())
                found.append((send_to_both(key), send_to_both(key)))
            return found

        for answers in chain.from_iterable(pairs.map(be_pair, range(PAIRS))):
            note(figures, *answers)
    figures.executed = count_runs(view, url, ledger) - before
    return figures


def note(figures: Figures, first: Answers, second: Answers) -> None:
    figures.keys += 1
    figures.met += any(answer is not None and answer.status == 409 for answer in first)
    responses = {(answer.status, answer.body) if answer else (0, b"") for answer in second}
    responses |= {(answer.status, answer.body) for answer in first if answer and answer.status == 201}
    figures.differing += len(responses) != 1 or {status for status, _ in responses} != {201}
    for _, body in responses:
        code = json.loads(body or "{}").get("code", "")
        for name in ("previous", "today"):
            if f"/{name}/" in code:
                figures.executed_by[name] = figures.executed_by.get(name, 0) + 1


def count_runs(view: str, url: str, ledger: Path) -> int:
    if view == "outside":
        return len(ledger.read_text().splitlines())
    with psycopg.connect(url) as connection:
        return int(connection.execute(ENTRIES).fetchone()[0])  # type: ignore[index] # a count has a row


def describe(found: Figures) -> str:
    by = ", ".join(f"{count:,} by {name}" for name, count in sorted(found.executed_by.items()))
    executed = f"{found.executed:,} runs{f' ({by})' if by else ''}"
    return f"{found.view}: {found.keys:,} keys, {executed}, {found.met:,} met while running, {found.differing:,} differ"


if __name__ == "__main__":
    sys.exit(main())
