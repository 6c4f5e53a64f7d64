"""The reference pages name what the code has: every argument with its default, every check with its id."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import django_idempotency
from django_idempotency import IETF, FingerprintRule, KeyRule, Policy, Profile, ReplyRule

PACKAGE = Path(django_idempotency.__file__).parent
REFERENCE = PACKAGE.parent / "docs" / "reference"
ROW = re.compile(
    r"^- \*\*`(?P<name>\w+)`\*\* \((?P<type>.+?), (?:default `(?P<default>.+)`|required)\):\n(?P<meaning>(?:  .+\n)+)",
    re.MULTILINE,
)
NAMES: Mapping[str, Any] = {
    "timedelta": timedelta,
    "IETF": IETF,
    "KeyRule": KeyRule,
    "FingerprintRule": FingerprintRule,
    "ReplyRule": ReplyRule,
}


def section(title: str) -> str:
    return (REFERENCE / "policy.md").read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def default_of(field: "Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@pytest.mark.parametrize("kind", [Policy, Profile, KeyRule, FingerprintRule, ReplyRule])
def test_every_argument_is_documented_with_its_default(kind: Any) -> None:
    said = {row["name"]: row for row in ROW.finditer(section(kind.__name__))}
    assert set(said) == {field.name for field in fields(kind)}
    for field in fields(kind):
        default = said[field.name]["default"]
        expected = MISSING if default is None else eval(default, dict(NAMES))  # noqa: S307 - our own page
        assert default_of(field) == expected, field.name
        assert said[field.name]["meaning"].strip().endswith(".")


def test_every_check_is_documented() -> None:
    pattern = re.compile(r"django_idempotency\.([EW]\d{3})")
    code = {number for path in PACKAGE.rglob("*.py") for number in pattern.findall(path.read_text())}
    rows = [line for line in (REFERENCE / "checks.md").read_text().splitlines() if line.startswith("- **`django")]
    documented = [number for row in rows for number in pattern.findall(row)]
    assert documented == sorted(documented, key=lambda number: number[1:])
    assert set(documented) == code
