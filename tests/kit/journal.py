"""How a test sees into a server process: a journal of what ran, and a gate that holds what has begun."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Journal:
    """Two files in the folder of a server."""

    folder: Path

    def note(self, what: str) -> None:
        with self.lines.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def count(self, what: str) -> int:
        """How often it ran."""
        return self.lines.read_text().splitlines().count(json.dumps(what)) if self.lines.exists() else 0

    def pass_gate(self) -> None:
        with self.gate.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    @contextmanager
    def gate_closed(self) -> Iterator[None]:
        with self.gate.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @property
    def lines(self) -> Path:
        return self.folder / "journal"

    @property
    def gate(self) -> Path:
        return self.folder / "gate"
