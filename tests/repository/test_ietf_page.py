"""docs/reference/ietf.md names every test of the draft, and no test that is not there."""

from __future__ import annotations

import re
from types import ModuleType

from tests.acceptance import test_ietf, test_ietf_gaps

ROWS = [f"R{row}" for row in (1, 2, 4, 6, 7, 8, 9, 11, 13, 14, *range(16, 26), *range(27, 31))]


def names_in(module: ModuleType) -> set[str]:
    return {name for name in vars(module) if name.startswith("test_")}


def test_the_page_names_the_tests_that_there_are() -> None:
    named = re.findall(r"`(test_(?!ietf)\w+)`", test_ietf.PAGE.read_text())

    assert sorted(named) == sorted(names_in(test_ietf) | names_in(test_ietf_gaps))


def test_the_page_has_every_row_and_its_test_has_the_rows_name() -> None:
    found = re.findall(r"^- \*\*(R[\dR, ]+)\*\* .*\n.*\n  `(test_\w+)`$", test_ietf.PAGE.read_text(), re.MULTILINE)
    listed = [(row, test) for rows, test in found for row in rows.split(", ")]

    assert sorted({row for row, _ in listed}) == sorted(ROWS)
    assert all(f"_{row.lower()}_" in test for row, test in listed)
