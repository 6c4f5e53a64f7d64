"""The tutorial, followed literally in an empty folder, with the built wheel: it ends where it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from testproject.servers import free_port
from tests.repository.tutorials import Shell, Type, WriteFile, steps

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("first-endpoint", "unknown-outcome", "ride", "ride-effects")
PAGES = [ROOT / "docs" / "tutorial" / f"{name}.md" for name in NAMES]
INSTALL = "python -m pip install"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(tmp_path.glob("*.whl"))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    missing = [name for name in ("bash", "curl") if not shutil.which(name)]
    if missing:
        pytest.skip(f"the tutorial was NOT followed: there is no {' and no '.join(missing)} here")
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "SYSTEMROOT") if name in os.environ}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    folder = tmp_path / "empty"
    folder.mkdir()
    shell = Shell(folder, {**kept, "PATH": path, "PYTHONUNBUFFERED": "1"})
    yield shell
    shell.close()


@pytest.fixture
def port() -> str:
    return str(free_port())


@pytest.mark.processes
@pytest.mark.soak
def test_followed_literally_it_ends_where_it_says(shell: Shell, port: str, tmp_path: Path, wheel: Path) -> None:
    project = tmp_path / "empty" / "shop"
    for page in PAGES:
        for step in steps(page.read_text()):
            match step:
                case WriteFile():
                    assert (project / step.path).parent.is_dir(), step.path
                    with (project / step.path).open("a" if step.append else "w") as file:
                        file.write(step.text)
                case Type() if step.command.startswith(INSTALL):
                    install(shell, wheel, tmp_path / "empty" / ".venv")
                case Type():
                    follow(shell, step, port, page.name)


def install(shell: Shell, wheel: Path, environment: Path) -> None:
    """The wheel as it is; what it depends on is borrowed, because a test asks no package index."""
    (site,) = environment.glob("lib/python*/site-packages")
    code, printed = shell.type(f"{INSTALL} --quiet --no-index --no-deps {wheel}")
    assert code == 0, f"{printed}\n{shell.complaints}"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # not before: pip would find it there
    _, where = shell.type('python -c "import django_idempotency as it; print(it.__file__)"')
    assert where.startswith(str(site)), "the wheel, not the checkout"


def follow(shell: Shell, step: Type, port: str, page: str) -> None:
    code, printed = shell.type(step.command.replace("8000", port))
    assert code == 0, f"{page}: {step.command}\n{printed}\n{shell.complaints}"
    assert step.agrees(printed), f"{page}: {step.command}\nshould have printed:\n{step.shown}\nand printed:\n{printed}"


def test_what_is_shown_is_compared() -> None:
    cases = [
        ("", "anything\n", True),
        ("one\n", "one\n", True),
        ("one\n", "two\n", False),
        ("one\n", "one\ntwo\n", False),
        ("a … c\n", "a b c\n", True),
        ("a … c\n", "a b d\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nz\n", True),
        ("a\n…\nz\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
    ]
    for shown, printed, agrees in cases:
        assert Type("command", shown).agrees(printed) is agrees, (shown, printed)
