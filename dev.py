#!/usr/bin/env python3
"""Run the demo, the tests or the checks of this checkout.

Needs Python 3.11 or newer and a package index. Everything else is installed into .venv, next to this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
DATABASES = ["sqlite", "postgresql", "mariadb"]
# These tests are the same on every database: they run on the first one only. `nodes` is for engines that have several.
NOT_ON_OTHERS = [
    "core",
    "repository",
    "browser",
    "contrib",
    "monitoring/test_monitoring.py",
    "client/test_errors.py",
    "client/test_guides.py",
    "client/test_lossy_network.py",
    "client/test_outbox.py",
    "client/test_retrying.py",
    "client/test_without_django.py",
    "clients/js",
    "acceptance/test_disconnects.py",
    "acceptance/test_frameworks_killed.py",
    "acceptance/test_generated_client.py",
    "acceptance/test_graphene.py",
    "testing/test_clients.py",
    "testing/test_plugin.py",
    "testing/test_provider.py",
    "testing/test_responses.py",
]
# The suite runs in two parts on each database, because the second mostly waits.
PARTS = {"": "not processes", "_processes": "processes"}
AT_ONCE = 5  # runs of pytest
# Each is started from packages. The first two are raced in every run; --engine runs all of ON_ENGINES on one of them.
ENGINES = ["pgbouncer", "hash", "replication", "galera", "citus"]
RACED = ENGINES[:2]
RACES = ["flow/test_one_winner.py", "flow/test_running_again.py", "once/test_many_at_once.py", "store/test_table.py"]
ON_ENGINES = [
    "flow",
    "store",
    "once",
    "maintenance",
    "nodes/test_proof.py",
    "acceptance/test_races.py",
    "acceptance/test_rides.py",
]
NODES = {"replication": ["nodes/test_promotion.py"], "galera": ["nodes/test_galera.py"]}
WITHOUT_CITUS = "tests/store/test_every_engine.py"  # asks of each statement whether Citus would plan it
FULLY_COVERED = "--include=django_idempotency/core/*,django_idempotency/store/*"
CLOSING_LINE = re.compile(r"(passed|failed|errors?|skipped|deselected|no tests ran)\b.* in [\d.]+s")


def run(*arguments: str) -> bool:
    """Run a module with the Python of .venv."""
    print("$", PYTHON.relative_to(ROOT), "-m", *arguments, flush=True)
    with subprocess.Popen([PYTHON, "-m", *arguments], cwd=ROOT) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            process.wait()  # the child was interrupted too and is cleaning up
            raise


def prepare(group: str) -> None:
    """Install the project and a dependency group into .venv, unless these very versions are installed."""
    stamp = VENV / f"installed-{group}"
    declared = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "requirements.lock").read_bytes()
    wanted = hashlib.sha256(declared).hexdigest()
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Installing the packages for '{group}' into {VENV.name}. It takes 20 to 60 seconds, once.", flush=True)
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import pip"], stderr=subprocess.DEVNULL).returncode:
        make_venv()
    project = ("--constraint", "requirements.lock", "--editable", ".[all]", "--group", group)
    if not run("pip", "install", "-q", "--upgrade", "pip>=25.1") or not run("pip", "install", "-q", *project):
        sys.exit("dev.py: the installation failed; see pip's message above.")
    stamp.write_text(wanted)


def make_venv() -> None:
    """Make .venv, or add pip to one that lacks it."""
    try:
        venv.create(VENV, with_pip=True, clear=not PYTHON.exists())
    except subprocess.CalledProcessError:
        exact = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        sys.exit(
            f"dev.py: {sys.executable} cannot put pip into a virtual environment, most likely because it comes without "
            f"ensurepip. Install that and run this again, for example: apt install python3-venv (or {exact})."
        )


class Outcome(NamedTuple):
    passed: bool
    closing_line: str


def run_pytest(title: str, environment: dict[str, str], arguments: list[str]) -> Outcome:
    """Run pytest with its coverage measured. Begin each line of its output with the title."""
    print(f"{title}######## {hide_password(environment['DATABASE_URL'])}", flush=True)
    command = [str(PYTHON), "-u", "-m", "coverage", "run", "-m", "pytest", "-m", "", *arguments]
    environment = {**os.environ, **environment}
    closing_line = "pytest ended without a closing line"
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(title + line, end="", flush=True)
            closing_line = line.strip() if CLOSING_LINE.search(line) else closing_line
    return Outcome(process.returncode == 0, closing_line)


def run_pytest_on_each(
    databases: dict[str, Any], brokers: dict[str, str], arguments: list[str], complete: bool
) -> dict[str, Outcome]:
    """Run pytest on all databases at the same time, because a run mostly waits for its database and its processes."""
    runs: dict[str, tuple[dict[str, str], list[str]]] = {}
    for name, database in databases.items():
        first = not runs
        selection = arguments or select(name, first=first, alone=len(databases) == 1)
        measured = ["-p", "tests.kit.measuring"] if complete and not first else []  # enough to judge the coverage
        options = [*measured, *database["options"], *selection]
        if arguments or name in ENGINES:
            runs[name] = (brokers | {"DATABASE_URL": database["url"]}, options)
            continue
        address, question, query = database["url"].partition("?")
        for part, mark in PARTS.items():  # each in a database of its own
            url = f"{address}{part}{question}{query}"
            runs[name + part] = (brokers | {"DATABASE_URL": url}, [*options, "-m", mark])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        width = max(map(len, runs), default=0)
        titles = {name: f"{name:<{width}} | " if len(runs) > 1 else "" for name in runs}
        futures = {name: pool.submit(run_pytest, titles[name], *run) for name, run in runs.items()}
        return {name: future.result() for name, future in futures.items()}


def select(name: str, *, first: bool, alone: bool) -> list[str]:
    """Return which tests run on this database, or on this engine."""
    if name in ENGINES:
        return [f"tests/{each}" for each in ([*NODES.get(name, []), *ON_ENGINES] if alone else RACES)]
    return [f"--ignore=tests/{each}" for each in (["nodes"] if first else ["nodes", *NOT_ON_OTHERS])]


def hide_password(url: str) -> str:
    return url.rpartition("@")[2]


def judge_coverage(complete: bool) -> Outcome:
    """Report the coverage. Require that of core and store to be complete when everything ran."""
    run("coverage", "combine", "--quiet")
    run("coverage", "report")
    if not complete:
        return Outcome(True, "not judged, because this was not the whole suite on all three databases")
    if run("coverage", "report", "--fail-under=100", FULLY_COVERED):
        return Outcome(True, "core and store are covered completely, branches included")
    return Outcome(False, "FAILED: core and store are not covered completely")


def test(only: str | None, arguments: list[str]) -> bool:
    """Run pytest on every database in reach, or on one engine, and say at the end what was not tested."""
    prepare("test")
    run("coverage", "erase")
    names = [only] if only else DATABASES if arguments else [*DATABASES, *RACED]
    command = [str(PYTHON), "-m", "tests.servers", *names]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
        if not (line := next(iter(servers.stdout or ()), "")):
            sys.exit("dev.py: the search for databases failed; see the error above.")
        found = json.loads(line)
        complete = set(DATABASES) <= set(found["databases"]) and not arguments
        if only == "citus" and not found["databases"]:
            run("pytest", "-m", "", WITHOUT_CITUS)
        try:
            outcomes = run_pytest_on_each(found["databases"], found["brokers"], arguments, complete)
        finally:
            servers.communicate()  # after a Ctrl-C too, they stop when the tests have ended
    coverage = Outcome(True, "not judged on an engine")
    if only not in ENGINES:
        coverage = judge_coverage(complete)
    left_out = [name for name in (*DATABASES, *ENGINES) if name not in names]
    brokers = ", ".join(map(hide_password, found["brokers"].values())) or "none"
    print(f"\n######## summary\nreachable brokers: {brokers}\ncoverage: {coverage.closing_line}")
    for line in [f"{', '.join(left_out)}: left out of this run", *found["missing"]]:
        print(f"NOT TESTED  {line}")
    for name, outcome in outcomes.items():
        database = found["databases"][name.removesuffix("_processes")]
        about = "; ".join(filter(None, [database["versions"], shlex.join(database["options"])]))
        print(f"{name}: {'passed' if outcome.passed else 'FAILED'}{about and f' ({about})'}\n{outcome.closing_line}")
    return bool(outcomes) and all(outcome.passed for outcome in (coverage, *outcomes.values()))


def check() -> bool:
    """Run the environments of tox.ini that check style, types, documentation, the wheel and a release."""
    prepare("tox")
    os.environ.setdefault("UV_SYSTEM_CERTS", "1")  # tox installs with uv: let it trust what pip trusts
    return run("tox", "run-parallel", "--parallel-no-spinner", "-e", "lint,typing,docs,bare,dist")


def demo(arguments: list[str]) -> bool:
    """Show the payments service at work."""
    prepare("demo-postgres" if "--postgres" in arguments else "demo")
    return run("testproject.demo", *arguments)


def main() -> bool:
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    tests = commands.add_parser("test", allow_abbrev=False, help="run pytest on each database; it gets other arguments")
    which = tests.add_mutually_exclusive_group()
    which.add_argument("--only", choices=DATABASES, help="one database instead of all that answer")
    engine = "an engine that is started for this run; without other arguments, the suites that an engine could break"
    which.add_argument("--engine", choices=ENGINES, help=engine)
    commands.add_parser("demo", allow_abbrev=False, add_help=False, help="show the payments service at work")
    commands.add_parser("check", help="check style, types, documentation and the wheel: what CI runs after the tests")
    options, others = parser.parse_known_args()
    if options.command == "test":
        return test(options.only or options.engine, others)
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
