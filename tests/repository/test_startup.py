"""How little django.setup() imports with the app installed. Counted, because a count holds on every machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["django.contrib.contenttypes", "django.contrib.auth"]
USUAL = ["django.contrib.admin", *SMALL, "django.contrib.sessions", "django.contrib.messages"]

PROGRAM = """
import importlib, json, sys
import django
from django.conf import settings

given = json.loads(sys.argv[1])
settings.configure(
    INSTALLED_APPS=given["apps"],
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    **given["settings"],
)
django.setup()
for name in given["imported"]:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""

MOST_AFTER_SETUP = 13
# Each layer that a process needs only when it serves requests, works, checks or shows the admin's pages.
LATER = {"checks", "console", "contrib", "flow", "http", "management", "monitoring", "store"}
PUBLIC = ["decorators", "middleware", "operations", "once", "reconciliation"]
PARSERS = {"http_sf", "rfc8785"}
OPTIONAL = {"celery", "kombu", "rest_framework", "prometheus_client", "opentelemetry", "django_celery_beat"}


def imported_by(apps: list[str], *imported: str, where: Path = ROOT, **settings: object) -> set[str]:
    """The modules that a fresh process has imported after django.setup() with these apps, and these imports."""
    given = {"apps": [*apps, "django_idempotency"], "imported": imported, "settings": settings}
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, where)))}
    found = subprocess.run(command, cwd=where, env=environment, check=True, capture_output=True, text=True)
    return set(json.loads(found.stdout))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "django_idempotency"}


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


@pytest.mark.parametrize("apps", [SMALL, USUAL], ids=["small", "with the admin"])
def test_setup_imports_the_models_and_little_else(apps: list[str]) -> None:
    modules = imported_by(apps)
    assert "django_idempotency.models" in modules
    layers = {name.split(".")[1] for name in ours(modules) if name.count(".") > 1}
    assert layers & LATER == {"checks"}, sorted(modules)
    assert len(ours(modules)) <= MOST_AFTER_SETUP, sorted(ours(modules))
    assert packages(modules) & (PARSERS | OPTIONAL) == set()


def test_no_public_module_imports_a_framework_or_a_page() -> None:
    public = [f"django_idempotency.{name}" for name in PUBLIC]
    modules = imported_by(SMALL, *public)
    assert modules.issuperset(public)
    assert packages(modules) & OPTIONAL == set()
    unexpected = ("checks.project", "console", "contrib", "management", "rest_framework", "tasks")
    assert {name for name in unexpected if f"django_idempotency.{name}" in modules} == set()


def test_a_project_that_counts_imports_the_counters() -> None:
    counters = "django_idempotency.monitoring.outcomes"
    assert counters in imported_by(SMALL, IDEMPOTENCY={"COUNT_OUTCOMES": True})
    assert counters not in imported_by(SMALL, IDEMPOTENCY={"REQUIRED": True})


def test_setup_imports_the_operations_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for name in ("__init__", "operations", "reconcilers"):
        (tmp_path / "shop" / f"{name}.py").touch()
    modules = imported_by([*SMALL, "shop"], where=tmp_path)
    assert {"shop.operations", "shop.reconcilers"} <= modules
