"""Environments with packages that cannot be installed beside those of the tests."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest


def make_environment(folder: Path, *requirements: str) -> Path:
    """Return the interpreter of an environment that has these packages and nothing of this project."""
    venv.create(folder, with_pip=False)
    made = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(made), "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False)
    if installed.returncode and "No matching distribution" in installed.stderr:
        pytest.skip(f"NOT TESTED: no package index has {', '.join(requirements)}")
    assert installed.returncode == 0, installed.stderr
    return made
