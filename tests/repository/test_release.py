"""What a release needs besides the package: agreed addresses and versions, workflows, templates, the container."""

from __future__ import annotations

import configparser
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands
from packaging.version import Version

import django_idempotency
from django_idempotency.core.links import DOCUMENTATION, REPOSITORY

ROOT = Path(__file__).resolve().parents[2]
FORGE = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = Version(django_idempotency.__version__)
# An address in which the project's name is whole: django-idempotency-key is another package.
ADDRESS = re.compile(r"https://[\w./-]*?django-idempotency(?![\w-]*key)[\w./-]*")
WORKFLOWS = sorted(FORGE.glob("workflows/*.yml"))


def load(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = import_module("yaml").safe_load(path.read_text())
    return loaded


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_every_file_has_the_same_public_addresses() -> None:
    found = {
        (str(path.relative_to(ROOT)), address)
        for path in tracked()
        if path.is_file() and path.suffix not in (".png", ".mo")
        for address in ADDRESS.findall(path.read_text(encoding="utf-8"))
    }
    assert {"pyproject.toml", "SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml"} <= {path for path, _ in found}
    assert [each for each in sorted(found) if not each[1].startswith((REPOSITORY, DOCUMENTATION.rstrip("/")))] == []


def test_vulnerabilities_are_reported_where_the_repository_is() -> None:
    assert f"<{REPOSITORY}/security/advisories/new>" in (ROOT / "SECURITY.md").read_text()


def test_each_kind_of_dependency_is_watched() -> None:
    watched = {each["package-ecosystem"]: each["directory"] for each in load(FORGE / "dependabot.yml")["updates"]}
    assert watched == {"github-actions": "/", "pip": "/", "npm": "/clients/js"}
    assert (ROOT / "clients/js/package.json").exists()


def test_the_addresses_of_the_distribution_agree() -> None:
    assert PROJECT["urls"] == {
        "Documentation": DOCUMENTATION,
        "Source": REPOSITORY,
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
        "Security": f"{REPOSITORY}/security/policy",
    }


def test_the_maturity_follows_the_version() -> None:
    maturity = "4 - Beta" if VERSION.is_prerelease else "5 - Production/Stable"
    assert f"Development Status :: {maturity}" in PROJECT["classifiers"]


def test_the_client_in_javascript_has_the_version_of_the_package() -> None:
    version = json.loads((ROOT / "clients/js/package.json").read_text())["version"]
    assert Version(version) == VERSION


def test_the_changelog_describes_the_version_and_has_a_place_for_the_next() -> None:
    headings = re.findall(r"^##+ (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:4] == ["[Unreleased]", "Added", "Changed", "Fixed"]
    assert headings[4].startswith(f"[{VERSION}]")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_and_no_secret(path: Path) -> None:
    text, workflow = path.read_text(), load(path)
    assert "secrets" not in text
    assert not re.search(r"pypi\.org|pythonhosted|registry\.", text)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert all(
        re.fullmatch(r"\./.+|[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", used) for used in re.findall(r"uses: (.+)", text)
    )
    commands = [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", []) if "run" in step]
    for program in re.findall(r"^(\.?\w[\w.-]*/[\w-]+)", "\n".join(commands), re.MULTILINE):
        assert os.access(ROOT / program, os.X_OK), program


def test_continuous_integration_tests_what_the_classifiers_promise() -> None:
    jobs = load(FORGE / "workflows/ci.yml")["jobs"]
    environments = [each["environment"] for each in jobs["test"]["strategy"]["matrix"]["include"]]
    commands = [step.get("run") for step in jobs["check"]["steps"]] + jobs["long"]["strategy"]["matrix"]["command"]
    assert {"python3 dev.py check", "python3 dev.py test --all"} <= set(commands)
    named = {*environments, *re.findall(r"tox run -e (\S+)", "\n".join(map(str, commands)))}
    assert named <= tox_environments(), "tox.ini is the list of environments"
    promised = re.findall(r"(Python|Django) :: (\d+\.\d+)", "\n".join(PROJECT["classifiers"]))
    factors = {f"{'py' if of == 'Python' else 'dj'}{version.replace('.', '')}" for of, version in promised}
    factors |= {"sqlite", "postgres", "mariadb", "lowest"}
    assert factors <= {factor for environment in environments for factor in environment.split("-")}


def tox_environments() -> set[str]:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    found = set()
    for line in tox["tox"]["env_list"].split("\n"):
        parts = [part.replace(" ", "").split(",") for part in re.split(r"[{}]", line)]
        found |= {"".join(chosen) for chosen in product(*parts)}
    return found - {""}


def test_tox_runs_the_tests_that_dev_py_runs() -> None:
    """Else an environment of CI would test less than the command of the README."""
    tox, dev = (ROOT / "tox.ini").read_text(), runpy.run_path(str(ROOT / "dev.py"))
    assert f'  sqlite: python -m pytest -m "" -o pythonpath= {{posargs:-m "{dev["QUICK"]}"}}' in tox
    others = f'  postgres, mariadb: python -m pytest -m "" -o pythonpath= {{posargs:-m "{dev["QUICK_ON_OTHERS"]}"}}'
    assert others in tox
    assert (ROOT / ".ci/run").read_text().splitlines()[-2:] == ["python3 dev.py test", "python3 dev.py check"]


def test_what_pre_commit_runs_is_what_check_runs() -> None:
    hooks = [hook["entry"] for each in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in each["hooks"]]
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    checks = "\n".join(tox[f"testenv:{name}"]["commands"] for name in ("lint", "typing")).strip().splitlines()
    programs = {line.split()[0] for line in checks if line}
    assert programs == {Path(entry.split()[0]).name for entry in hooks} - {"python"}


def test_a_release_is_tested_built_once_attested_and_published_without_a_password() -> None:
    jobs = load(FORGE / "workflows/release.yml")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    assert [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]] == [
        "actions/download-artifact",
        "actions/attest-build-provenance",
        "pypa/gh-action-pypi-publish",
    ]
    trusted = [name for name, job in jobs.items() if job["permissions"].get("id-token") == "write"]
    assert trusted == ["publish"]
    assert [step["run"] for step in jobs["build"]["steps"] if "tox run" in step.get("run", "")] == [
        ".venv/bin/tox run -e dist"
    ]


def test_a_report_of_a_bug_has_what_the_first_question_back_would_ask() -> None:
    fields = {field.get("id"): field for field in load(FORGE / "ISSUE_TEMPLATE/bug.yml")["body"]}
    assert {"version", "database", "mode", "doctor"} <= {
        name for name, field in fields.items() if field.get("validations", {}).get("required")
    }
    assert "manage.py idempotency_doctor --json" in fields["doctor"]["attributes"]["description"]
    assert "idempotency_doctor" in get_commands()


@pytest.mark.soak
def test_the_container_has_all_files_of_the_demo(tmp_path: Path) -> None:
    image = (ROOT / "testproject/Containerfile").read_text()
    for *names, folder in map(str.split, re.findall(r"^COPY (.+)$", image, re.MULTILINE)):
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tmp_path / folder)
            else:
                shutil.copy(ROOT / name, tmp_path / folder)
    command = json.loads(re.findall(r"^CMD (.+)$", image, re.MULTILINE)[-1])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    for arguments in (["manage.py", "check", "--fail-level", "WARNING"], [*command[1:], "--help"]):
        finished = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert finished.returncode == 0, finished.stderr
