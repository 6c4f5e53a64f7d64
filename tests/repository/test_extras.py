"""Each extra brings what its part of the package imports: installed from an index into an empty environment."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

# What else the documentation says to install, and what has to be importable then. Kombu's Redis transport imports
# packaging, which comes with celery[redis] and not with the client alone.
BESIDE = {"celery": ["redis"], "postgres": ["psycopg[binary]"], "all": ["redis", "psycopg[binary]"]}
IMPORTED = {
    "drf": ["django_idempotency.rest_framework"],
    "celery": ["django_idempotency.tasks", "celery.bin.worker", "celery.bin.beat", "kombu.transport.redis"],
    "beat": ["django_celery_beat.schedulers", "django_idempotency.management.beat"],
    "postgres": ["django.db.backends.postgresql.base"],
    "openapi": ["django_idempotency.contrib.spectacular"],
    "prometheus": ["django_idempotency.contrib.prometheus"],
    "otel": ["django_idempotency.contrib.opentelemetry"],
    "ninja": ["django_idempotency.ninja"],
    "client": ["django_idempotency.client.httpx_transport", "django_idempotency.client.outbox"],
}
IMPORTED["all"] = [
    name for extra in ("drf", "celery", "postgres", "prometheus", "otel", "ninja") for name in IMPORTED[extra]
]

PROGRAM = """
import importlib, sys
import django
from django.conf import settings

apps = ["django.contrib.contenttypes", "django.contrib.auth", "django_idempotency"]
if "django_celery_beat.schedulers" in sys.argv:
    apps.append("django_celery_beat")
settings.configure(INSTALLED_APPS=apps, USE_TZ=True)
django.setup()
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_every_extra_is_tried() -> None:
    assert set(IMPORTED) == set(EXTRAS)


@pytest.mark.processes
@pytest.mark.soak
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_works_in_an_empty_environment(extra: str, wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "own", with_pip=False)
    python = tmp_path / "own" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    installed = run([*pip, f"{wheel}[{extra}]", *BESIDE.get(extra, [])])
    if installed.returncode and "No matching distribution" in installed.stderr:
        pytest.skip(f"the extra {extra} was NOT tried: no package index has all of it. {installed.stderr[-200:]}")
    assert installed.returncode == 0, installed.stderr
    agreed = run([sys.executable, "-m", "pip", "--python", str(python), "check"])
    assert agreed.returncode == 0, agreed.stdout
    imported = run([str(python), "-I", "-c", PROGRAM, *IMPORTED[extra]])
    assert imported.returncode == 0, imported.stderr


@pytest.mark.processes
@pytest.mark.soak
def test_the_lines_for_a_clone_install_the_project_as_they_are_written(tmp_path: Path) -> None:
    pages = (ROOT / "README.md", ROOT / "docs/start/quick-start.md", ROOT / "docs/how-to/install.md")
    lines = {
        line
        for page in pages
        for line in re.findall(r"`(pip install [^`]*)` in the folder of a clone", page.read_text())
    }
    assert len(lines) == 2, "the README, the quick start and the guide say it"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    venv.create(tmp_path / "own", with_pip=True)
    for line in sorted(lines):
        activated = f". {tmp_path}/own/bin/activate && {line} --quiet --disable-pip-version-check"
        installed = subprocess.run(["bash", "-c", activated], cwd=clone, capture_output=True, text=True, check=False)
        assert installed.returncode == 0, f"{line}: {installed.stderr}"
    found = run(
        [str(tmp_path / "own" / "bin" / "python"), "-I", "-c", "import django_idempotency, rest_framework, celery"]
    )
    assert found.returncode == 0, found.stderr


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=False)
