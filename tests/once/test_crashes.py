"""A management command is killed in the middle of its work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from pytest_django.plugin import DjangoDbBlocker

from testproject.servers import ROOT
from tests.kit.processes import query
from tests.kit.threads import wait_until

pytestmark = pytest.mark.vendor

WORK = """
import sys
from datetime import timedelta
from django_idempotency.exceptions import IdempotencyError
from django_idempotency.once import once
from testproject.payments.models import LedgerEntry

def run(claim):
    LedgerEntry.objects.create(reference={key!r}, account="work", amount=1)
    print("working", flush=True)
    sys.stdin.read()
    return "done"

try:
    print(once(scope="tests.killed", key={key!r}, mode={mode!r}, lease=timedelta(seconds=1), run=run))
except IdempotencyError as error:
    print(error.code)
"""


@dataclass(frozen=True)
class Command:
    """Works until its input ends."""

    mode: str
    key: str
    database_url: str

    def start(self) -> subprocess.Popen[str]:
        code = WORK.format(key=self.key, mode=self.mode)
        return subprocess.Popen(
            [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": self.database_url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed_in_the_middle(self) -> None:
        with self.start() as process:
            assert process.stdout
            assert process.stdout.readline() == "working\n"
            process.kill()

    def said(self) -> str:
        """The last word of a run that nobody disturbs."""
        with self.start() as process:
            output, _ = process.communicate()
        return output.split()[-1]

    def bookings(self) -> int:
        return len(query(self.database_url, "SELECT id FROM payments_ledgerentry WHERE reference = %s", self.key))


@pytest.fixture
def _reachable(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


@pytest.mark.usefixtures("_reachable")
def test_a_leased_one_is_unknown_once_its_lease_is_over(http_database: str) -> None:
    command = Command("leased", uuid4().hex, http_database)
    command.killed_in_the_middle()

    said = wait_until(lambda: (word := command.said()) != "idempotency_key_in_progress" and word)

    assert said == "idempotency_outcome_unknown"
    assert command.bookings() == 1, "what ran had its effect, and nobody ran it again"


@pytest.mark.usefixtures("_reachable")
def test_an_atomic_one_leaves_nothing_and_runs_afresh(http_database: str) -> None:
    command = Command("atomic", uuid4().hex, http_database)
    command.killed_in_the_middle()
    assert command.bookings() == 0

    assert [command.said() for _ in range(2)] == ["done", "done"]
    assert command.bookings() == 1
