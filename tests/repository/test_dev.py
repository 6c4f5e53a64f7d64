"""The first command a stranger types says what is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from testproject.servers import ROOT

pytestmark = pytest.mark.processes


@pytest.fixture
def python_without_ensurepip(tmp_path: Path) -> Path:
    """As some distributions ship it: the same interpreter over a standard library that lacks one package."""
    library = Path(sysconfig.get_path("stdlib"))
    copied = tmp_path / "python" / "lib" / library.name
    copied.mkdir(parents=True)
    for entry in library.iterdir():
        if entry.name not in ("ensurepip", "site-packages", "__pycache__"):
            (copied / entry.name).symlink_to(entry)
    python = tmp_path / "python" / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python.parent.mkdir()
    shutil.copy2(Path(sys.base_prefix, "bin", python.name), python)
    return python


@pytest.mark.parametrize(("arguments", "group"), [([], "demo"), (["--once", "--postgres"], "demo-postgres")])
def test_a_python_without_ensurepip_is_told_what_to_install(
    python_without_ensurepip: Path, tmp_path: Path, arguments: list[str], group: str
) -> None:
    for name in ("dev.py", "pyproject.toml", "requirements.lock"):
        shutil.copy2(Path(ROOT, name), tmp_path)
    command = [str(python_without_ensurepip), "dev.py", "demo", *arguments]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert f"Installing the packages for '{group}' into .venv" in outcome.stdout
    assert "comes without ensurepip" in outcome.stderr
    assert "apt install python3-venv" in outcome.stderr
    assert "Traceback" not in outcome.stderr
