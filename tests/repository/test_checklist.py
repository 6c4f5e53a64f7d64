"""Every command of the production checklist exists, takes these options, and prints what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, load_command_class
from django.core.management import get_commands as commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "production-checklist.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`python manage\.py ([^`]+)`", TEXT)))
SHELL = [shlex.split(command)[2] for command in COMMANDS if command.startswith("shell")]


def test_a_command_of_the_checklist_takes_its_options() -> None:
    """The parser names the command and the option that it does not know, and exits."""
    assert COMMANDS
    for command in COMMANDS:
        name, *options = shlex.split(command)
        app = commands()[name]
        loaded = load_command_class(app, name) if isinstance(app, str) else app
        assert loaded.create_parser("manage.py", name).parse_args(options)


@pytest.mark.django_db
def test_a_line_of_python_of_the_checklist_prints_something(settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings.IDEMPOTENCY = {"NAMESPACE": "shop-production", "SECRETS": {"2026-11": b"0123456789abcdef"}}
    for code in SHELL:
        call_command("shell", command=code, verbosity=0)
        assert capsys.readouterr().out.strip(), code


def test_each_line_can_be_ticked() -> None:
    items = [line for line in TEXT.splitlines() if line.startswith("- ")]
    assert all(line.startswith("- [ ] ") for line in items)
    assert len(items) > 20
