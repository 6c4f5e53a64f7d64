"""What the demonstration prints: colours and a clock on a terminal, the same lines without them elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from shutil import get_terminal_size
from textwrap import wrap
from threading import Event, Thread
from typing import Any

from testproject.http import Answer

SHOWN_HEADERS = ("Authorization", "Idempotency-Key", "Location", "Retry-After", "Idempotency-Replayed")
FIRST_MEMBERS = ("code", "safe_new_key", "detail")  # of an error response, what a client decides by
INDENT = " " * 10  # of a request or a response that goes on in another line
KEPT_TOGETHER = "\N{NO-BREAK SPACE}"  # wrap() breaks no line at it
PLAIN_WIDTH, WIDEST = 110, 120
COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Screen:
    """One place for everything that is printed, so that it fits the terminal and stops where the reader is."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self.has_colours = self.is_terminal and "NO_COLOR" not in os.environ
        self.width = min(get_terminal_size((PLAIN_WIDTH, 24)).columns, WIDEST)
        self.place = ""  # "step 10 of 15"

    def paint(self, text: str, *names: str) -> str:
        if not self.has_colours or not text:
            return text
        return f"\x1b[{';'.join(COLOURS[name] for name in names)}m{text}\x1b[0m"

    def write(self, text: str, first: str = "", rest: str = "", *names: str) -> None:
        """Print wrapped text; words that are longer than the line are broken, so that nothing is cut."""
        lines = wrap(text, self.width, initial_indent=first, subsequent_indent=rest or first, break_on_hyphens=False)
        for line in lines or [""]:
            print(self.paint(line.replace(KEPT_TOGETHER, " "), *names), flush=True)

    def step(self, number: int, total: int, title: str) -> None:
        self.place = f"step {number} of {total}"
        start = f"{number:>2} of {total}  "
        print()
        self.write(title, start, " " * len(start), "bold", "cyan")
        print()

    def request(self, line: str, headers: Mapping[str, str], body: str) -> None:
        self.write(self._with_headers(line, headers), "    --> ", INDENT)
        self.write(body, "        ", "", "dim") if body else None

    def response(self, answer: Answer) -> None:
        tone = "green" if answer.status < 300 else "yellow" if answer.status < 500 else "red"
        self.write(self._with_headers(str(answer.status), answer.headers), "    <-- ", INDENT, tone)
        if text := shorten(answer):
            self.write(text, "        ", "", "dim")

    def note(self, text: str) -> None:
        self.write(f"({text})", "    ", "     ", "dim")

    def fact(self, text: str) -> None:
        self.write(text, "    ==> ", "        ", "bold", "green")

    def look(self, where: str, url: str) -> None:
        """Print an address, which is not wrapped: it has to be clicked."""
        self.write(f"Look at it {where}:", "    ", "    ", "bold")
        print(f"    {url}", flush=True)

    def _with_headers(self, line: str, headers: Mapping[str, str] | Message) -> str:
        """Append the headers. A line breaks between them, and within one only where it is longer than a line."""
        for name in SHOWN_HEADERS:
            if name in headers:
                text = f"{name}: {headers[name]}"
                line += "  " + (text.replace(" ", KEPT_TOGETHER) if len(INDENT + text) <= self.width else text)
        return line

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Count the seconds on a terminal; elsewhere say once what is waited for."""
        if not self.is_terminal:
            self.note(f"waiting for {what}")
            yield
            return
        done = Event()
        clock = Thread(target=self._count, args=(what, done), daemon=True)
        clock.start()
        try:
            yield
        finally:
            done.set()
            clock.join()
            print("\r\x1b[K", end="", flush=True)

    def _count(self, what: str, done: Event) -> None:
        began = time.monotonic()
        while not done.wait(0.25):
            text = f"    {self.place}, waiting for {what}, {time.monotonic() - began:.0f} s"
            print(f"\r\x1b[K{self.paint(text[: self.width - 1], 'dim')}", end="", flush=True)


def shorten(answer: Answer) -> str:
    """Return of an error response what a client decides by, of work under way how far it is, else the body."""
    kind = answer.headers["Content-Type"] or ""
    if kind == "application/problem+json":
        return json.dumps({name: value for name in FIRST_MEMBERS if (value := answer.json().get(name)) is not None})
    body: Any = answer.json() if kind.startswith("application/json") else None
    if answer.status == 202 and isinstance(body, dict) and "steps" in body:
        extent = body.get("progress")
        return f"{body['status']}, {extent['done']} of {extent['total']} pages" if extent else f"{body['status']}"
    return json.dumps(body) if body is not None else "; ".join(answer.body.decode().splitlines())
