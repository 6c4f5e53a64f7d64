"""Every system check is registered, although its module is imported only when it runs."""

from __future__ import annotations

import ast
import re
from io import StringIO
from pathlib import Path

import pytest
from django.core import checks
from django.core.checks.registry import registry
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from pytest_django import Settings

import django_idempotency
from django_idempotency.checks.registry import CHECKS
from django_idempotency.core.links import DOCUMENTATION

FOLDER = Path(django_idempotency.__file__).parent / "checks"
MODULES = {path.stem: ast.parse(path.read_text()) for path in FOLDER.glob("*.py") if path.stem != "registry"}


def test_every_check_is_in_the_table() -> None:
    written = {
        f"{module}.{node.name}"
        for module, tree in MODULES.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    }
    assert written == set(CHECKS)


def test_no_check_registers_itself() -> None:
    """It would be registered when the first check runs, too late for that run."""
    names = {each.id for tree in MODULES.values() for each in ast.walk(tree) if isinstance(each, ast.Name)}
    assert "register" not in names


def test_every_check_is_registered_once() -> None:
    ours = [each for each in registry.get_checks() if each.__module__ == "django_idempotency.checks.registry"]
    assert len(ours) == len(CHECKS)


def test_every_message_leads_to_its_line_of_the_reference(settings: Settings) -> None:
    settings.IDEMPOTENCY = {"REQUIRE": True, "LEASE": "5"}
    output = StringIO()
    with pytest.raises(SystemCheckError) as failed:
        call_command("check", stdout=output)
    page = (FOLDER.parents[1] / "docs/reference/checks.md").read_text()
    for number in ("e002", "e003"):
        assert f"See {DOCUMENTATION}reference/checks.html#{number}\n" in str(failed.value)
    ids = set(re.findall(r"id='django_idempotency\.([EW]\d+)'", "".join(map(ast.unparse, MODULES.values()))))
    assert len(ids) > 30
    for each in ids:
        assert page.count(f'- **`django_idempotency.{each}`**<a id="{each.lower()}"></a>:') == 1


@pytest.mark.parametrize("tag", sorted(set(CHECKS.values())))
def test_a_check_runs_with_its_tag_alone(settings: Settings, tag: str) -> None:
    settings.IDEMPOTENCY = {"REQUIRE": True}
    found = {message.id for message in checks.run_checks(tags=[tag])}
    assert ("django_idempotency.E002" in found) == (tag == checks.Tags.security)
