"""The client needs no Django, and neither library before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import django_idempotency.client as client

names = [name for name in client.__all__ if not {"Transport": "httpx", "Adapter": "requests"}.get(
    name.removeprefix("Async").removeprefix("Idempotent"), "") in sys.argv[1].split(",")]
for name in names:
    getattr(client, name)
print(*names)
assert not {"django", *sys.argv[1].split(",")} & {name.split(".")[0] for name in sys.modules}
"""


def names_without(*packages: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, ",".join(packages)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_without_django() -> None:
    assert {"IdempotentTransport", "IdempotentAdapter", "Outbox"} <= set(names_without("django"))


def test_without_httpx_or_requests() -> None:
    assert "IdempotentAdapter" in names_without("django", "httpx", "anyio")
    assert "IdempotentTransport" in names_without("django", "requests", "urllib3")
    assert "Outbox" in names_without("django", "requests", "urllib3", "httpx", "anyio")
