"""The reference pages name every command, task and signal there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import BaseCommand, get_commands, load_command_class
from django.dispatch import Signal

from django_idempotency import signals
from django_idempotency.monitoring.findings import Code
from django_idempotency.monitoring.jobs import SCHEDULED
from testproject.servers import ROOT

REFERENCE = Path(ROOT, "docs", "reference")
OURS = {name for name, app in get_commands().items() if app == "django_idempotency"}


def named(page: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, (REFERENCE / page).read_text(), re.MULTILINE))


def test_every_command_is_described() -> None:
    assert named("commands.md", r"idempotency_(?!…)\w+") == OURS


def options(command: str) -> set[str]:
    """The command's own, beside those that every command of Django takes."""
    try:
        parser = load_command_class("django_idempotency", command).create_parser("manage.py", command)
    except ModuleNotFoundError:
        pytest.skip("NOT TESTED: django-celery-beat allows no Django as new as this one")
    of_django = {
        each for action in BaseCommand().create_parser("manage.py", "")._actions for each in action.option_strings
    }
    return {each for action in parser._actions for each in action.option_strings} - of_django


@pytest.mark.parametrize("command", sorted(OURS))
def test_every_option_of_a_command_is_described(command: str) -> None:
    taken = options(command)
    assert "--json" in taken
    assert ("--database" in taken) is (command not in ("idempotency_install_schedule", "idempotency_endpoints"))
    assert taken <= named("commands.md", r"--[a-z][a-z-]*")


def test_every_task_is_described_with_its_rhythm() -> None:
    rows = {f"| `{job.task_name}` | {job.every} s" for job in SCHEDULED}
    assert named("tasks.md", r"^\| `django_idempotency\.\w+` \| \d+ s") == rows


def test_every_signal_is_described() -> None:
    sent = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    assert named("signals.md", r"^\| `(\w+)` \| `") == sent


def test_every_finding_is_described() -> None:
    assert named("findings.md", r"^## ([a-z0-9-]+)$") == {code.value for code in Code}
