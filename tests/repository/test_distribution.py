"""What a release holds, that its version stands in one place, and that the groups hold what they are for."""

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

import django_idempotency
from django_idempotency.core.links import DOCUMENTATION, REPOSITORY

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> ZipFile:
    return ZipFile(next(built.glob("*.whl")))


def sources() -> set[str]:
    package = ROOT / "django_idempotency"
    return {
        str(path.relative_to(ROOT)) for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.processes
def test_wheel_holds_the_package_and_nothing_else(wheel: ZipFile) -> None:
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == sources()


@pytest.mark.processes
def test_wheel_holds_what_is_not_imported(wheel: ZipFile) -> None:
    names = wheel.namelist()
    assert "django_idempotency/py.typed" in names
    assert any(name.startswith("django_idempotency/migrations/0001_") for name in names)
    assert "django_idempotency/static/django_idempotency/console.css" in names
    assert "django_idempotency/monitoring/alerts.yaml" in names
    assert "django_idempotency/monitoring/grafana.json" in names
    assert "django_idempotency/templates/django_idempotency/console/record.html" in names
    assert {f"django_idempotency/locale/de/LC_MESSAGES/django.{kind}" for kind in ("po", "mo")} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.processes
def test_source_distribution_is_enough_to_build_the_wheel(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sources() | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not {name for name in names if name.startswith(("tests/", "testproject/", "benchmarks/", "clients/"))}


@pytest.fixture
def metadata(wheel: ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(wheel.read(name).decode())


@pytest.mark.processes
def test_version_stands_in_one_place(metadata: Message) -> None:
    assert "version" in DECLARED["project"]["dynamic"]
    assert metadata["Version"] == django_idempotency.__version__


@pytest.mark.processes
def test_the_page_of_a_package_index_has_no_link_into_the_checkout(metadata: Message) -> None:
    page = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert page.startswith("# django_idempotency")
    assert page.rstrip().endswith("MIT licence.")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", page) == []
    assert "Until a release is published" not in page
    for target in re.findall(rf"\]\({re.escape(DOCUMENTATION)}([^)#]*)[^)]*\)", page):
        assert (ROOT / "docs" / target.replace(".html", ".md")).is_file(), target
    for target in re.findall(rf"\]\({re.escape(REPOSITORY)}/blob/main/([^)]*)\)", page):
        assert (ROOT / target).is_file(), target


def named(requirements: list[str | dict[str, str]]) -> set[str]:
    """The distributions, those of included groups too."""
    names: set[str] = set()
    for one in requirements:
        if isinstance(one, dict):
            names |= named(DECLARED["dependency-groups"][one["include-group"]])
        else:
            names.add(re.match(r"[\w.-]+", one)[0].lower())  # type: ignore[index] # each begins with its name
    return names


def imported(module: Path) -> set[str]:
    """The packages that a module cannot do without: not what stands in a function or under a condition."""
    body = ast.parse(module.read_text()).body
    body += [inner for statement in body if isinstance(statement, ast.With) for inner in statement.body]
    absolute = {statement.module or "" for statement in body if isinstance(statement, ast.ImportFrom)}
    plain = {name.name for statement in body if isinstance(statement, ast.Import) for name in statement.names}
    packages = {name.partition(".")[0] for name in absolute | plain}
    brought = {"asgiref", "kombu"}  # by Django and by Celery
    return packages - sys.stdlib_module_names - brought - {"testproject", "django_idempotency"}


@pytest.mark.parametrize("group", ["demo", "demo-postgres"])
def test_the_groups_of_the_demo_hold_what_the_payments_service_imports(group: str) -> None:
    found = named(DECLARED["project"]["dependencies"]) | named(DECLARED["dependency-groups"][group])
    servers = {ROOT / "testproject" / name for name in ("postgres.py", "replication.py")} if group == "demo" else set()
    wanted = {package for module in {*ROOT.glob("testproject/**/*.py")} - servers for package in imported(module)}
    homes = packages_distributions()
    assert {package for package in wanted if not found & {home.lower() for home in homes[package]}} == set()


def test_the_repository_holds_at_its_top_only_what_has_a_reason() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert {path.partition("/")[0] for path in listed.stdout.split("\0") if path} == {
        *(
            ".ci",
            ".editorconfig",
            ".github",
            ".gitignore",
            ".pre-commit-config.yaml",
            "CHANGELOG.md",
            "CODE_OF_CONDUCT.md",
            "CONTRIBUTING.md",
            "LICENSE",
            "README.md",
        ),
        *(
            "SECURITY.md",
            "benchmarks",
            "clients",
            "dev.py",
            "django_idempotency",
            "docs",
            "manage.py",
            "pyproject.toml",
        ),
        *("requirements.lock", "testproject", "tests", "tox.ini"),
    }
