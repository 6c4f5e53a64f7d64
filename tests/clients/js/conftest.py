"""The payments service behind gunicorn, and the programs of JavaScript."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from testproject.servers import ROOT
from tests.kit.processes import Site, running_site

CLIENT = ROOT / "clients" / "js"
SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.clients.js.served.settings", "GATEWAY_TIMEOUT_SECONDS": "60"}


@pytest.fixture(scope="session")
def js_site(
    tmp_path_factory: pytest.TempPathFactory, own_database: Callable[[str], AbstractContextManager[str]]
) -> Iterator[Site]:
    with (
        own_database("js") as url,
        running_site(tmp_path_factory.mktemp("js"), url, workers=2, environment=SETTINGS) as site,
    ):
        yield site


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("NOT TESTED: there is no node, so the JavaScript client was not run")
    return found


def run_program(
    *command: str | Path, folder: Path = CLIENT, environment: Mapping[str, str] | None = None, seconds: int = 120
) -> str:
    """Run a program to its end; its output is the message of a failure."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def describe(site: Site) -> dict[str, str]:
    """Return the environment variables that lead a program to the service, and its commands to the same database."""
    return {
        **SETTINGS,
        "SERVICE_URL": site.service.url,
        "DATABASE_URL": site.database_url,
        "GATEWAY_URL": site.gateway.url,
        "PYTHON": sys.executable,
        "ROOT": str(ROOT),
    }


NO_REGISTRY = ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "E404")
LIBRARIES = ("axios@1", "ky@2", "got@15", "typescript@5", "esbuild@0")


@pytest.fixture(scope="session")
def package(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client in the form in which it would be published."""
    folder = tmp_path_factory.mktemp("package")
    run_program("npm", "pack", "--pack-destination", folder)
    (packed,) = folder.glob("*.tgz")
    return packed


@pytest.fixture(scope="session")
def app(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has installed the client and nothing else."""
    return install(tmp_path_factory.mktemp("app"), "--offline", package)


@pytest.fixture(scope="session")
def app_with_libraries(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("libraries"), package, *LIBRARIES)


def install(folder: Path, *arguments: str | Path) -> Path:
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and any(code in done.stderr for code in NO_REGISTRY):
        pytest.skip(f"NOT TESTED: npm cannot install {', '.join(LIBRARIES)}")
    assert done.returncode == 0, done.stderr
    return folder
