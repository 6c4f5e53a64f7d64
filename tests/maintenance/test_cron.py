"""The lines of the crontab in the guide: what they print, cron mails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from testproject.servers import ROOT

pytestmark = pytest.mark.processes

GUIDE = Path(ROOT, "docs", "how-to", "cron.md").read_text()
LINES = re.findall(r"^(?:[\d*/]+ ){5} cd /srv/shop && (.*manage\.py (\w+).*)$", GUIDE, re.MULTILINE)
COMMANDS = {command: line for line, command in LINES}
DOCTOR = COMMANDS.pop("idempotency_doctor")


@pytest.fixture(scope="module")
def database(own_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with own_database("cron") as url:
        yield url


def mailed(line: str, database: str) -> str:
    """Whatever the line prints."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "DATABASE_URL": database}
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout


@pytest.mark.soak
def test_cron_mails_only_what_is_wrong(database: str) -> None:
    assert "The maintenance job sweep has never run to its end" in mailed(DOCTOR, database)
    assert {command: mailed(line, database) for command, line in COMMANDS.items()} == dict.fromkeys(COMMANDS, "")
    assert mailed(DOCTOR, database) == ""


def test_cron_mails_what_fails(tmp_path: Path) -> None:
    lines = [*COMMANDS.values(), DOCTOR]
    with ThreadPoolExecutor(len(lines)) as pool:
        mails = pool.map(partial(mailed, database=f"sqlite:///{tmp_path}/no/such/folder"), lines)
    assert [line for line, mail in zip(lines, mails, strict=True) if "OperationalError" not in mail] == []
