"""The rules about what a client is told, searched through by spin, and what goes wrong without each of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.processes]
HERE = Path(__file__).parent
WEAKENED = [
    ("effect", "IGNORE_DERIVED"),
    ("effect", "IGNORE_WROTE"),
    ("effect", "IGNORE_STEPS"),
    ("effect", "IGNORE_TAINT"),
    ("effect", "ENDED_IS_SAFE"),
    ("effect", "FOREIGN_PROOF"),
    ("effect", "RELEASE_WITHOUT"),
    ("effect", "ABANDON_ALL"),
    ("effect", "NO_GRACE"),
    ("read_back", "SAME_TOKEN"),
    ("read_back", "NO_READ_BACK"),
]


@pytest.fixture(autouse=True)
def _tools() -> None:
    missing = [name for name in ("spin", "gcc") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"the models were NOT checked: {' and '.join(missing)} missing (apt-get install spin gcc)")


def errors(model: str, folder: Path, *flags: str) -> str:
    """Search all states of a model, and return spin's line about errors and what was violated."""

    def call(*command: str) -> str:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300).stdout

    call("spin", "-a", *(f"-D{flag}" for flag in flags), str(HERE / f"{model}.pml"))
    call("gcc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c")
    found = call("./pan", "-E", "-m200000")  # a process that waits for ever is no error here: only the promises count
    assert "max search depth too small" not in found
    return found


@pytest.mark.parametrize("model", ["effect", "read_back"])
def test_the_rule_holds_in_every_state(model: str, tmp_path: Path) -> None:
    assert "errors: 0" in errors(model, tmp_path)


@pytest.mark.parametrize(("model", "flag"), WEAKENED)
def test_without_a_part_of_the_rule_there_is_a_counterexample(model: str, flag: str, tmp_path: Path) -> None:
    found = errors(model, tmp_path, flag)
    assert "errors: 1" in found
    assert "assertion violated" in found
