"""What the app adds to django.setup(): python -m benchmarks.startup

Starts a fresh interpreter for every figure, with and without the app in turn, and prints the medians of the
differences: processor time, memory and imported modules. Needs Linux and no database. `--modules` lists the modules
that are imported because of the app. Ends with 1 if setup takes more than 15 ms or 3 MB longer with the app.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

MOST_MILLISECONDS, MOST_MEGABYTES = 15.0, 3.0
LEAST_ROUNDS: Final = 20

SMALL: Final = ["django.contrib.contenttypes", "django.contrib.auth"]
USUAL: Final = [
    "django.contrib.admin",
    *SMALL,
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
PROJECTS: Final[dict[str, tuple[list[str], str]]] = {  # the other apps, and what is imported after setup
    "contenttypes and auth": (SMALL, ""),
    "the same, with the decorators": (SMALL, "django_idempotency.decorators"),
    "startproject's apps, with the admin": (USUAL, ""),
}

PROGRAM: Final = """
import importlib, json, resource, sys, time
import django
from django.conf import settings

given = json.loads(sys.argv[1])
settings.configure(
    INSTALLED_APPS=given["apps"],
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

before, begun = memory(), time.process_time()
django.setup()
if given["imported"]:
    importlib.import_module(given["imported"])
spent, held = time.process_time() - begun, memory() - before
print(json.dumps({"milliseconds": spent * 1e3, "megabytes": held / 1e6, "modules": sorted(sys.modules)}))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description="What the app adds to setup.")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help="pairs of interpreters for each figure")
    parser.add_argument("--modules", action="store_true", help="list the modules that are imported because of the app")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as bytecode:
        measured = {name: measure(name, options.rounds, bytecode) for name in PROJECTS}
    print(f"{'added by the app, beside':40}{'ms':>8}{'MB':>8}{'modules':>9}{'ours':>6}")
    for name, (milliseconds, megabytes, modules) in measured.items():
        ours = sum(module.startswith("django_idempotency") for module in modules)
        print(f"{name:40}{milliseconds:8.1f}{megabytes:8.1f}{len(modules):9}{ours:6}")
        if options.modules:
            print("    " + "\n    ".join(modules))
    setups = [measured[name] for name, (_apps, imported) in PROJECTS.items() if not imported]
    return int(any(each[0] > MOST_MILLISECONDS or each[1] > MOST_MEGABYTES for each in setups))


def measure(name: str, rounds: int, bytecode: str) -> tuple[float, float, list[str]]:
    """Return the medians of the differences in time and memory, and the modules that only the app needs."""
    others, imported = PROJECTS[name]
    without = {"apps": others, "imported": ""}
    with_app = {"apps": [*others, "django_idempotency"], "imported": imported}
    run(without, bytecode), run(with_app, bytecode)  # these write the bytecode
    pairs = [(run(without, bytecode), run(with_app, bytecode)) for _ in range(rounds)]
    differences = (
        median(more[figure] - less[figure] for less, more in pairs) for figure in ("milliseconds", "megabytes")
    )
    less, more = pairs[0]
    return (*differences, sorted(set(more["modules"]) - set(less["modules"])))


def run(given: dict[str, Any], bytecode: str) -> dict[str, Any]:
    """Start an interpreter that reads bytecode, as an installed package has it."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True)  # noqa: S603 - this interpreter
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
