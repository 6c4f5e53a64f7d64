"""The samples of the guides for clients, run against a service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from django_idempotency.client import Outbox, OutgoingCall
from tests.kit.scripted import Scripted, ScriptedService, problem

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
OK = Scripted(201, {"Content-Type": "application/json"}, b'{"id": 17}')
BODY = b'{"amount": 1200, "currency": "EUR", "customer": "ada"}'


def samples(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return [found["code"] for found in FENCE.finditer(text) if found["language"] == language]


def leave_open(path: str, url: str) -> None:
    """Leave calls of a process that was killed: one of now and one that is too old."""
    for name, created in (("old", 0.0), ("open", time.time())):
        Outbox(path).store.add(OutgoingCall(name, "left open", "POST", f"{url}/payments/", b"{}", {}, created))


@pytest.mark.django_db(transaction=True)
def test_the_samples_for_python(
    service: ScriptedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    scripts = [
        [Scripted(503), OK],
        [Scripted(503), OK],
        [problem(409, "key_in_progress", {"Retry-After": "100"})],
        [problem(202, "key_accepted", {"Location": "/status/1"}), Scripted(202, {}, b'{"progress": [1, 3]}'), OK],
        [OK, Scripted(cut=0), OK],
        [],
        [OK],
    ]
    httpx, requests, errors, work, outbox, settings, django = samples("python-client.md", "python")
    for code, script in zip((httpx, requests, errors, work, outbox, settings, django), scripts, strict=True):
        service.script = script
        if code is outbox:
            leave_open("payments.outbox", service.url)
        before = len(service.got)
        local = code.replace("https://api.example.com", service.url)
        exec(compile(local, "python-client.md", "exec"), names)  # noqa: S102 - our own samples
        if code is not settings and code is not errors:
            assert names["response"].json() == {"id": 17}
            keys = {request.key for request in service.got[before:] if request.method == "POST"}
            assert len(keys - {"left open"}) == 1
    printed = capsys.readouterr().out
    assert "Try again in 100 seconds" in printed
    assert "[1, 3]" in printed
    assert "old is still open: TooOld(" in printed
    assert 'open got 201: {"id": 17}' in printed
    for name in ("client", "session", "exports"):
        names[name].close()
    assert [call.name for call in names["outbox"].store.open_calls()] == []
    assert [call.name for call in Outbox("payments.outbox").store.open_calls()] == ["old"]


def run(command: list[str], service: ScriptedService, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "API": service.url, "TOKEN": "alice-token", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_sample_for_curl(service: ScriptedService, tmp_path: Path) -> None:
    once, _loop = samples("command-line.md", "bash")
    service.script = [Scripted(429, {"Retry-After": "1"}), OK, OK]
    for _ in range(2):
        assert run(["bash", "-c", once], service, tmp_path).stdout.endswith('{"id": 17}')
    assert len(service.got) == 3
    (key,) = {request.key for request in service.got}
    assert re.fullmatch(r'"[0-9a-f]{32}"', key or "")
    assert {request.body for request in service.got} == {BODY}


@pytest.mark.parametrize("language", ["bash", "python"])
def test_the_scripts(service: ScriptedService, tmp_path: Path, language: str) -> None:
    """A cut response, a busy key and a second start: one key, one body."""
    (tmp_path / "pay").write_text(samples("command-line.md", language)[-1])
    (tmp_path / "body.json").write_bytes(BODY)
    command = ["bash" if language == "bash" else sys.executable, "pay", "order-17", "body.json"]
    service.script = [Scripted(cut=4), problem(409, "key_in_progress", {"Retry-After": "0"}), OK]
    first, again = run(command, service, tmp_path), run(command, service, tmp_path)
    assert (first.returncode, first.stdout) == (0, '{"id": 17}'), first.stderr
    assert (again.returncode, again.stdout) == (0, '{"id": 17}'), again.stderr
    assert len({request.key for request in service.got}) == 1
    assert {request.body for request in service.got} == {BODY}
    sent = len(service.got)
    (tmp_path / "body.json").write_bytes(b"{}")
    assert run(command, service, tmp_path).returncode != 0
    assert len(service.got) == sent


def test_the_loop_stops_at_an_error_and_keeps_its_key(service: ScriptedService, tmp_path: Path) -> None:
    (tmp_path / "pay").write_text(samples("command-line.md", "bash")[-1])
    (tmp_path / "body.json").write_bytes(BODY)
    service.script = [problem(422, "key_reused_with_different_payload"), OK]
    failed = run(["bash", "pay", "order-17", "body.json"], service, tmp_path)
    assert (failed.returncode, len(service.got)) == (1, 1)
    assert "422" in failed.stderr
    assert (tmp_path / "order-17.key").exists()
