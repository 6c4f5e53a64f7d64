"""`crash_at` leaves in the database what SIGKILL leaves at the same place, column by column."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.testing.test_crashes import POINTS

pytestmark = [pytest.mark.vendor, pytest.mark.soak]

ROOT = Path(__file__).resolve().parents[2]


def test_a_crash_leaves_what_a_killed_process_leaves(
    own_database: Callable[[str], AbstractContextManager[str]], tmp_path: Path
) -> None:
    tried = [(name, where) for name in ("called", "atomic") for where in POINTS]
    with own_database("killed") as url:
        environment = {
            **os.environ,
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "TESTPROJECT_VAR": str(tmp_path),
            "PYTHONPATH": str(ROOT),
        }
        ran = subprocess.run(
            [sys.executable, "-m", "tests.testing.killed", json.dumps(tried)],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for (name, where), (killed, crashed) in zip(tried, json.loads(ran.stdout), strict=True):
        assert crashed == killed, (name, where)
    left = [bool(rows) for (rows, *_), _ in json.loads(ran.stdout)]
    assert left == [*[True] * len(POINTS), False, False, False, True, True]
