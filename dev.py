#!/usr/bin/env python3
"""Run the tests, the demonstration or the checks of this checkout.

Needs Python 3.11 or newer and nothing else: whatever has to be installed goes into .venv beside this file.
"""

from __future__ import annotations

import argparse
import getpass
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = Path("Scripts", "python.exe") if os.name == "nt" else Path("bin", "python")
PYTHON = str(VENV / BIN)
LOCAL_NAME = "idempotency_" + hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]  # two checkouts, two databases

POSTGRESQL_ANSWERS = """
import psycopg, sys
with psycopg.connect(sys.argv[1], connect_timeout=2, dbname="postgres") as connection:
    allowed = connection.execute("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    sys.exit(not (allowed[0] and connection.info.server_version >= 150000))
"""
MARIADB_ANSWERS = "import pymysql; pymysql.connect(host='127.0.0.1', user='root', connect_timeout=2)"


def run(*command: str, cwd: Path = ROOT) -> bool:
    print("$ " + " ".join(command).replace(f"{ROOT}{os.sep}", ""), flush=True)
    with subprocess.Popen(command, cwd=cwd) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            process.wait()  # the child was interrupted too and is tidying up
            raise


def tool(*command: str) -> bool:
    return run(PYTHON, "-m", *command)


def answers(code: str, *arguments: str) -> bool:
    return subprocess.run([PYTHON, "-c", code, *arguments], capture_output=True, check=False).returncode == 0


def make_venv(folder: Path) -> None:
    try:
        venv.create(folder, with_pip=True, clear=not (folder / BIN).exists())
    except subprocess.CalledProcessError:
        exact = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        sys.exit(
            f"dev.py: {sys.executable} cannot put pip into a virtual environment, most likely because it comes without "
            f"ensurepip. Install that and run this again, for example: apt install python3-venv (or {exact})."
        )


def prepare(group: str) -> None:
    """Install the project and a dependency group into .venv, unless this very pyproject.toml was installed before."""
    stamp = VENV / f"installed-{group}"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if Path(PYTHON).exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Installing what '{group}' needs into {VENV.name} (once).", flush=True)
    if not Path(PYTHON).exists() or not answers("import pip"):
        make_venv(VENV)
    project = ("--editable", ".[all]", "--group", group)
    if not tool("pip", "install", "-q", "--upgrade", "pip>=25.1") or not tool("pip", "install", "-q", *project):
        sys.exit("dev.py: that could not be installed; pip says above why.")
    stamp.write_text(wanted)


def given(*schemes: str) -> str | None:
    url = os.environ.get("DATABASE_URL", "")
    return url if url.partition(":")[0] in schemes else None


def sqlite(_stack: ExitStack) -> str | None:
    return given("sqlite") or "sqlite:///var/test.sqlite3"


def postgresql(stack: ExitStack) -> str | None:
    if url := given("postgresql", "postgres"):
        return url
    for user in (getpass.getuser(), "postgres"):
        url = f"postgresql://{user}@127.0.0.1:5432/{LOCAL_NAME}"
        if answers(POSTGRESQL_ANSWERS, url):
            return url
    return stack.enter_context(own_postgresql())


@contextmanager
def own_postgresql() -> Iterator[str | None]:
    """A server from a Python package, for machines that have none. It lives until its standard input closes."""
    command = [PYTHON, "-m", "testproject.postgres"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield next(iter(server.stdout or ()), "").strip() or None


def mariadb(_stack: ExitStack) -> str | None:
    local = f"mysql://root@127.0.0.1:3306/{LOCAL_NAME}"
    return given("mysql", "mariadb") or (local if answers(MARIADB_ANSWERS) else None)


DATABASES: dict[str, tuple[Callable[[ExitStack], str | None], str]] = {
    "sqlite": (sqlite, ""),
    "postgresql": (postgresql, "no DATABASE_URL, no trusted server at 127.0.0.1:5432, and none could be started"),
    "mariadb": (mariadb, "no DATABASE_URL, and root without a password is not let in at 127.0.0.1:3306"),
}


NO_DATABASE = ("tests/core", "tests/repository", "tests/browser")  # the same on every database: run with the first one


LOCAL_BROKERS = {
    "REDIS_URL": ("redis://127.0.0.1:6379/0", 6379, b"PING\r\n", b"+PONG"),
    "AMQP_URL": ("amqp://guest:guest@127.0.0.1:5672//", 5672, b"AMQP\0\0\x09\x01", b"\x01"),
}


def greets(name: str) -> bool:
    _url, port, hello, welcome = LOCAL_BROKERS[name]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(hello)
            return connection.recv(16).startswith(welcome)
    except OSError:
        return False


def brokers() -> dict[str, str]:
    """Where the optional servers answer, by the name of the variable that tells the tests."""
    found = {name: os.environ[name] for name in LOCAL_BROKERS if os.environ.get(name)}
    return {name: url for name, (url, *_) in LOCAL_BROKERS.items() if greets(name)} | found


def without_password(url: str) -> str:
    return url.rpartition("@")[2]


def pytest_on_each(urls: dict[str, str], servers: dict[str, str], arguments: list[str]) -> dict[str, tuple[bool, str]]:
    """The suites beside each other: each waits for its database and its processes more than it computes."""
    pool = ThreadPoolExecutor(len(urls) or 1)
    runs: dict[str, Future[tuple[bool, str]]] = {}
    try:
        for name, url in urls.items():
            again = [f"--ignore={folder}" for folder in NO_DATABASE] if runs and not arguments else []
            title = f"{name:<10} | " if len(urls) > 1 else ""
            runs[name] = pool.submit(pytest, title, url, servers, [*again, *arguments])
        return {name: run.result() for name, run in runs.items()}
    finally:
        pool.shutdown(cancel_futures=True)


def pytest(title: str, url: str, servers: dict[str, str], arguments: list[str]) -> tuple[bool, str]:
    """Whether pytest was content, and the line it closed with. The title begins each line."""
    print(f"{title}######## {without_password(url)}", flush=True)
    command = [PYTHON, "-u", "-m", "coverage", "run", "-m", "pytest", *arguments]
    environment = {**os.environ, **servers, "DATABASE_URL": url}
    closing = "pytest ended without a closing line"
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(title + line, end="", flush=True)
            if re.search(r"(passed|failed|errors?|skipped|deselected|no tests ran)\b.* in [\d.]+s", line):
                closing = line.strip()
    return process.returncode == 0, closing


def coverage(complete: bool) -> tuple[bool, str]:
    tool("coverage", "combine", "--quiet")
    tool("coverage", "report")
    if not complete:
        return True, "not judged, because this was not the whole suite on all three databases"
    if tool("coverage", "report", "--fail-under=100", "--include=django_idempotency/core/*,django_idempotency/store/*"):
        return True, "core and store are covered completely, branches included"
    return False, "FAILED: core and store are not covered completely"


def test(only: str | None, arguments: list[str]) -> bool:
    prepare("test")
    tool("coverage", "erase")
    servers, missing = brokers(), []
    urls: dict[str, str] = {}
    with ExitStack() as stack:
        for name, (find, reason) in DATABASES.items():
            if only not in (None, name):
                missing.append(f"{name}: left out by --only {only}")
            elif url := find(stack):
                urls[name] = url
            else:
                missing.append(f"{name}: {reason}")
        outcomes = pytest_on_each(urls, servers, arguments)
    missing += [f"{name}: not set, and nothing answers locally" for name in LOCAL_BROKERS if name not in servers]
    covered, verdict = coverage(complete=len(outcomes) == len(DATABASES) and not arguments)
    print("\n######## summary\nreachable brokers: " + (", ".join(map(without_password, servers.values())) or "none"))
    print(f"coverage: {verdict}")
    for line in missing:
        print(f"NOT TESTED  {line}")
    for name, (passed, closing) in outcomes.items():
        print(f"{name}: {'passed' if passed else 'FAILED'}\n{closing}")
    return covered and bool(outcomes) and all(passed for passed, _closing in outcomes.values())


def wheel() -> bool:
    """The built wheel works where neither Django REST framework nor Celery is installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not tool("hatchling", "build", "--directory", name):
            return False
        make_venv(folder / "bare")
        python, built = str(folder / "bare" / BIN), str(next(folder.glob("*.whl")))
        script = str(ROOT / "tests" / "repository" / "bare_installation.py")
        return run(python, "-m", "pip", "install", "-q", built) and run(python, script, cwd=folder)


def docs() -> bool:
    built = str(ROOT / "var" / "docs")
    script = str(ROOT / "tests" / "repository" / "built_site.py")
    shutil.rmtree(built, ignore_errors=True)  # what an earlier build left has links of its own
    return tool("sphinx", "-W", "--keep-going", "-q", "-E", "docs", built) and run(PYTHON, script, built)


CHECKS: dict[str, Callable[[], bool]] = {
    "lint": partial(tool, "ruff", "check", "."),
    "format": partial(tool, "ruff", "format", "--check", "."),
    "types": partial(tool, "mypy"),
    "docs": docs,
    "wheel": wheel,
}


def check() -> bool:
    prepare("dev")
    summary = []
    for name, work in CHECKS.items():
        start, passed = time.monotonic(), work()
        summary.append((passed, f"{name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - start:.0f} s"))
    print("\n######## summary", *(line for _passed, line in summary), sep="\n")
    return all(passed for passed, _line in summary)


def demo(arguments: list[str]) -> bool:
    prepare("demo-postgres" if "--postgres" in arguments else "demo")
    return tool("testproject.demo", *arguments)


def main() -> bool:
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    tests = commands.add_parser(
        "test", allow_abbrev=False, help="run pytest once per database; it gets all other arguments"
    )
    tests.add_argument("--only", choices=DATABASES, help="one database instead of all that answer")
    commands.add_parser("demo", allow_abbrev=False, add_help=False, help="show the payments service at work")
    commands.add_parser("check", help="lint, types, docs and wheel: what CI runs after the tests")
    options, others = parser.parse_known_args()
    if options.command == "test":
        return test(options.only, others)
    if options.command == "demo":
        return demo(others)
    if others:
        parser.error(f"check takes no arguments, so it cannot do anything with {' '.join(others)}")
    return check()


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit(f"dev.py: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed; this is {sys.version.split()[0]}.")
    try:
        sys.exit(not main())
    except KeyboardInterrupt:
        sys.exit("\ndev.py: interrupted")
