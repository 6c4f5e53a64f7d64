#!/usr/bin/env python3
"""Run the demo, the tests or the checks of this checkout, or install what they need.

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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
DATABASES = ["sqlite", "postgresql", "mariadb"]
# What pytest runs, by its markers. A soak repeats, races or waits for long. A `vendor` test depends on the database.
QUICK, QUICK_ON_OTHERS = "not soak", "vendor and not soak"
WHOLE, WHOLE_ON_OTHERS = "", "vendor or not soak"
# Each is started from packages. --all races the first two; --engine runs all of ON_ENGINES on one of them.
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
    pins = VENV / f"pins-{group}.txt"
    pins.write_text(list_pins(group))
    packages = ("--require-hashes", "--requirement", str(pins.relative_to(ROOT)))
    project = ("--no-deps", "--no-build-isolation", "--editable", ".")
    if not run("pip", "install", "-q", *packages) or not run("pip", "install", "-q", *project):
        sys.exit("dev.py: the installation failed; see pip's message above.")
    stamp.write_text(wanted)


def list_pins(group: str) -> str:
    """Return the part of requirements.lock that the project, its build and a dependency group need.

    pip takes hashes only where each requirement is one exact version. The comments of the lock tell who needs what.
    """
    import tomllib  # an older Python has none, and is told so first

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = {**declared["dependency-groups"], "build": declared["build-system"]["requires"]}
    pins = re.findall(r"^([a-z].*?)(==.+\n(?:[ ].*\n)*)", (ROOT / "requirements.lock").read_text(), re.M)
    users = [(name, set(re.findall(r"^ +#(?: via)? +(.+)", pin, re.M))) for name, pin in pins]
    found, needed = set[str](), {"django-idempotency (pyproject.toml)", *list_names(groups, group, "build")}
    while needed > found:
        found = set(needed)
        needed |= {name for name, its_users in users if its_users & found}
    return "".join(name + pin for name, pin in pins if name in needed)


def list_names(groups: dict[str, Any], *chosen: str) -> Iterator[str]:
    """Return the names of the packages in these groups, as requirements.lock spells them."""
    for requirement in (each for group in chosen for each in groups[group]):
        if isinstance(requirement, dict):
            yield from list_names(groups, requirement["include-group"])
        else:
            yield re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


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


def run_pytest(title: str, environment: dict[str, str], command: list[str]) -> Outcome:
    """Run pytest, and begin each line of its output with the title."""
    print(f"{title}######## {hide_password(environment['DATABASE_URL'])}", flush=True)
    closing_line = "pytest ended without a closing line"
    options: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, **environment}, "text": True}
    with subprocess.Popen([PYTHON, "-u", "-m", *command], stdout=subprocess.PIPE, **options) as process:
        for line in process.stdout or ():
            print(title + line, end="", flush=True)
            closing_line = line.strip() if CLOSING_LINE.search(line) else closing_line
    return Outcome(process.returncode == 0, closing_line)


def run_pytest_on_each(
    databases: dict[str, Any], brokers: dict[str, str], arguments: list[str], *, whole: bool
) -> dict[str, Outcome]:
    """Run pytest on all databases at the same time: a run often waits for its database and its processes."""
    width = max(map(len, databases), default=0)
    with ThreadPoolExecutor(max(len(databases), 1)) as pool:
        futures = {}
        for name, database in databases.items():
            title = f"{name:<{width}} | " if len(databases) > 1 else ""
            selection = arguments or select(name, whole=whole, alone=len(databases) == 1)
            command = ["pytest", "-m", "", *selection, *database["options"]]
            if whole:  # measuring doubles the processor time, so the others add only what SQLite does not run
                command = [
                    "coverage",
                    "run",
                    "-m",
                    *command,
                    *([] if name == "sqlite" else ["-p", "tests.kit.measuring"]),
                ]
            futures[name] = pool.submit(run_pytest, title, brokers | {"DATABASE_URL": database["url"]}, command)
        return {name: future.result() for name, future in futures.items()}


def select(name: str, *, whole: bool, alone: bool) -> list[str]:
    """Return which tests run on this database, or on this engine."""
    if name in ENGINES:
        return [f"tests/{each}" for each in ([*NODES.get(name, []), *ON_ENGINES] if alone else RACES)]
    on_sqlite, on_others = (WHOLE, WHOLE_ON_OTHERS) if whole else (QUICK, QUICK_ON_OTHERS)
    return ["--ignore=tests/nodes", "-m", on_sqlite if name == "sqlite" else on_others]


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


def test(only: str | None, arguments: list[str], *, whole: bool) -> bool:
    """Run pytest on every database in reach, or on one engine, and say at the end what was not tested."""
    prepare("test")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the tests start hundreds of processes, which would compile it all
    whole = whole and not arguments
    names = [only] if only else [*DATABASES, *RACED] if whole else DATABASES
    command = [str(PYTHON), "-m", "tests.servers", *names]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
        if not (line := next(iter(servers.stdout or ()), "")):
            sys.exit("dev.py: the search for databases failed; see the error above.")
        found = json.loads(line)
        if only == "citus" and not found["databases"]:
            run("pytest", "-m", "", WITHOUT_CITUS)
        if whole:
            run("coverage", "erase")
        try:
            outcomes = run_pytest_on_each(found["databases"], found["brokers"], arguments, whole=whole)
        finally:
            servers.communicate()  # after a Ctrl-C too, they stop when the tests have ended
    coverage = Outcome(True, "not measured")
    if whole:
        coverage = judge_coverage(complete=set(DATABASES) <= set(found["databases"]))
    brokers = ", ".join(map(hide_password, found["brokers"].values())) or "none"
    print(f"\n######## summary\nreachable brokers: {brokers}\ncoverage: {coverage.closing_line}")
    if left_out := [name for name in (*DATABASES, *ENGINES) if name not in names]:
        print(f"NOT TESTED  {', '.join(left_out)}: left out of this run")
    if not (whole or arguments or only in ENGINES):
        print("NOT TESTED  soaks, browsers and JavaScript: `dev.py test --all` runs them, and measures the coverage")
    for line in found["missing"]:
        print(f"NOT TESTED  {line}")
    for name, outcome in outcomes.items():
        database = found["databases"][name]
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
    whole = "everything: soaks, browsers, JavaScript, races on two engines, and the coverage; it takes half an hour"
    tests.add_argument("--all", action="store_true", help=whole)
    commands.add_parser("demo", allow_abbrev=False, add_help=False, help="show the payments service at work")
    install = commands.add_parser("install", help="install the project and a dependency group into .venv")
    install.add_argument("group", choices=["demo", "demo-postgres", "dev", "docs", "tox"])
    commands.add_parser("check", help="check style, types, documentation and the wheel: what CI runs after the tests")
    options, others = parser.parse_known_args()
    if options.command == "test":
        return test(options.only or options.engine, others, whole=options.all)
    if options.command == "demo":
        return demo(others)
    if others:
        parser.error(f"{options.command} cannot do anything with {' '.join(others)}")
    if options.command == "install":
        prepare(options.group)
        return True
    return check()


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit(f"dev.py: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed; this is {sys.version.split()[0]}.")
    try:
        sys.exit(not main())
    except KeyboardInterrupt:
        sys.exit("\ndev.py: interrupted")
