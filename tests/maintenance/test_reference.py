"""The reference pages name every command, task and signal there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from django.core.management import get_commands
from django.dispatch import Signal

from django_idempotency import signals, tasks
from testproject.servers import ROOT

REFERENCE = Path(ROOT, "docs", "reference")


def named(page: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, (REFERENCE / page).read_text(), re.MULTILINE))


def test_every_command_is_described() -> None:
    commands = {name for name, app in get_commands().items() if app == "django_idempotency"}
    assert named("commands.md", r"idempotency_(?!…)\w+") == commands


def test_every_task_is_described_with_its_rhythm() -> None:
    rows = {f"| `{name}` | {seconds} s" for name, seconds in tasks.SECONDS.items()}
    assert named("tasks.md", r"^\| `django_idempotency\.\w+` \| \d+ s") == rows


def test_every_signal_is_described() -> None:
    sent = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert named("signals.md", r"^\| `(\w+)` \| `") == sent
