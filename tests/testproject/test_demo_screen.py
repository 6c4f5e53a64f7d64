"""What the demonstration prints fits the terminal, hides nothing that matters, and has no colours in a pipe."""

from __future__ import annotations

import json
import re
from email.message import Message
from threading import Event
from typing import Any

import pytest

from testproject.demo_screen import Screen, shorten
from testproject.http import Answer

WORK = {"status": "in_progress", "steps": []}
PROBLEM = {"type": "about:blank", "title": "t", "detail": "word " * 60, "code": "a_code", "safe_new_key": False}


def answer(body: Any, kind: str = "application/json", status: int = 200, **headers: str) -> Answer:
    found = Message()
    found["Content-Type"] = kind
    for name, value in headers.items():
        found[name.replace("_", "-")] = value
    return Answer(status, found, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "80")
    return Screen()


def test_no_line_is_longer_than_the_terminal_and_no_word_is_missing(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    screen.step(3, 15, "A title " * 20)
    screen.request("POST /payments/", {"Idempotency-Key": "k" * 100}, "one word " * 30)
    screen.response(answer(PROBLEM, "application/problem+json", 409, Retry_After="2"))
    screen.note("A note " * 20)
    screen.fact("A fact " * 20)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert [shown.count(word) for word in ("title", "note", "fact", "one", "word")] == [20, 20, 20, 30, 90]
    assert '"safe_new_key": false' in shown
    assert "3 of 15" in shown


def test_a_header_is_not_torn_from_its_value(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    screen.request("POST /payments/", {"Authorization": "Token alice-token", "Idempotency-Key": '"order-1"'}, "")
    assert capsys.readouterr().out.splitlines() == [
        "    --> POST /payments/  Authorization: Token alice-token",
        '          Idempotency-Key: "order-1"',
    ]
    screen.request("GET /", {"Location": "/" * 70}, "")
    assert capsys.readouterr().out.splitlines() == ["    --> GET /  Location:", f"          {'/' * 70}"]


def test_a_pipe_gets_no_colours_and_one_line_for_each_wait(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    screen.step(3, 15, "title")
    screen.response(answer({}, status=500))
    with screen.waiting("the lease to expire"):
        pass
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.endswith("    (waiting for the lease to expire)\n")


def test_a_terminal_counts_the_seconds_of_a_wait(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, written = Event(), list[str]()

    class Terminal:
        def write(self, text: str) -> None:
            written.append(text)
            if "waiting" in text:
                drawn.set()

        def flush(self) -> None:
            pass

    monkeypatch.setattr("sys.stdout", Terminal())
    screen.is_terminal = screen.has_colours = True
    screen.place = "step 10 of 15"
    with screen.waiting("the lease to expire"):
        assert drawn.wait(30)
    shown = "".join(written)
    assert re.search(r"step 10 of 15, waiting for the lease to expire, \d+ s", shown)
    assert shown.endswith("\r\x1b[K"), "the line is taken back"


def test_of_a_response_the_interesting_part_is_shown() -> None:
    shown = {
        '{"id": 7}': answer({"id": 7}),
        "in_progress, 4 of 11 pages": answer({**WORK, "progress": {"done": 4, "total": 11}}, status=202),
        "in_progress": answer(WORK, status=202),
        "a,b; 1,2": answer(b"a,b\n1,2\n", "text/csv"),
    }
    assert [shorten(found) for found in shown.values()] == list(shown)
    assert list(json.loads(shorten(answer(PROBLEM, "application/problem+json")))) == ["code", "safe_new_key", "detail"]
