"""docs/reference/frameworks.md says of each framework what the tests expect of it, and has a test for each column."""

from __future__ import annotations

import re
from pathlib import Path

from tests.acceptance import test_frameworks_killed
from tests.http import test_frameworks
from tests.kit.frameworks import FRAMEWORKS, Framework

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "frameworks.md").read_text()
PACKAGES = ["django", "djangorestframework", "django-ninja", "strawberry-graphql"]


def expected(framework: Framework) -> dict[str, str]:
    """What each behaviour means for this framework, as its tests expect it."""
    return {
        "framework": f"[{framework.name}](../how-to/{framework.guide})",
        "new": "runs",
        "replay": "replayed",
        "mismatch": "422",
        "no key": "400",
        "in flight": "409",
        "other user": "runs",
        "unauthenticated": str(framework.unauthenticated),
        "raise": "409" if framework.raised == 409 else f"{framework.raised}, then 409",
        "kill": "409",
        "disconnect": "finishes",
    }


def table(header: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, ["---"] * len(header), *rows])


def test_the_table_says_what_the_tests_expect() -> None:
    rows = [expected(framework) for framework in FRAMEWORKS]

    assert table(list(rows[0]), [list(row.values()) for row in rows]) in PAGE


def test_each_column_has_a_test_and_a_description() -> None:
    _, *columns = expected(FRAMEWORKS[0])
    section = PAGE.partition("## The behaviours")[2].partition("## Versions")[0]
    names = [*vars(test_frameworks), *vars(test_frameworks_killed)]
    tests = {name for name in names if name.startswith("test_")}

    assert re.findall(r"^\| (\w[\w ]+) \|", section, re.MULTILINE) == ["column", *columns]
    assert tests == {f"test_{column.replace(' ', '_')}" for column in columns}


def test_the_versions_are_those_that_are_declared_and_pinned() -> None:
    declared, lock = (ROOT / "pyproject.toml").read_text(), (ROOT / "requirements.lock").read_text()
    rows = []
    for package in PACKAGES:
        (supported,) = {*re.findall(rf'"{package}([<>][^"\s]+)"', declared)}
        rows.append([package, f"`{supported}`", ", ".join(re.findall(rf"^{package}==(\S+)", lock, re.MULTILINE))])

    assert table(["package", "supported", "tested with"], rows) in PAGE
