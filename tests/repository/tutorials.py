"""A tutorial as something to follow: its files are written, its commands typed, and what it shows is compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

FENCE = re.compile(r"^```(?P<kind>python|console)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^(?P<how>Write|Append to) `(?P<path>[^`]+)`:$", re.MULTILINE)
PATIENCE_SECONDS = 90


@dataclass(frozen=True)
class WriteFile:
    path: str
    text: str
    append: bool


@dataclass(frozen=True)
class Type:
    """A command, and what the page says it prints; nothing where the page says nothing."""

    command: str
    shown: str

    def agrees(self, printed: str) -> bool:
        """`…` stands for anything: within a line, or for lines where it stands alone."""
        if not self.shown:
            return True
        lines = [r"(?:.*\n)*?" if line == "…" else f"{_loosely(line)}\n" for line in self.shown.splitlines()]
        return re.fullmatch("".join(lines), printed.replace("\r", "").rstrip("\n") + "\n") is not None


def _loosely(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))


def steps(page: str) -> Iterator[WriteFile | Type]:
    end = 0
    for fence in FENCE.finditer(page):
        named, end = NAMED.search(page, end, fence.start()), fence.end()
        if fence["kind"] == "python":
            assert named, f"no line above names the file of:\n{fence['text']}"
            yield WriteFile(named["path"], fence["text"], named["how"] == "Append to")
        else:
            for command in fence["text"].removeprefix("$ ").split("\n$ "):
                line, _, shown = command.partition("\n")
                yield Type(line, shown)


class Shell:
    """One bash, as a reader's terminal: what is typed later sees what was set before."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._errors = (folder / "stderr.txt").open("w+")
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def close(self) -> None:
        """The shell, and whatever it left running."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)

    def type(self, command: str) -> tuple[int, str]:
        """Its exit code and what it printed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f'{command}\nprintf "\\nended with %d\\n" $?\n')
        self._process.stdin.flush()
        printed = ""
        while not (end := re.search(r"\nended with (\d+)\n\Z", printed)):
            try:
                printed += self._lines.get(timeout=PATIENCE_SECONDS)
            except Empty:
                raise AssertionError(f"{command} did not end; it said:\n{printed}\n{self.complaints}") from None
        return int(end[1]), printed[: end.start()]
