"""docs/contributing/choices.md lists every decision with its date."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "contributing"
DECISION = re.compile(r"^## (.+)\n\n\*Decided (\d{4}-\d\d-\d\d)\.\*$", re.MULTILINE)


def test_the_index_lists_every_decision_with_its_date() -> None:
    listed = re.findall(
        r"^\| \[(.+)\]\((choices-\w+\.md)#.*\) \| (.+) \|$", (FOLDER / "choices.md").read_text(), re.MULTILINE
    )
    texts = {page.name: page.read_text() for page in FOLDER.glob("choices-*.md")}
    assert all(len(DECISION.findall(text)) == text.count("\n## ") for text in texts.values())
    assert sorted(listed) == sorted(
        (heading, name, date) for name, text in texts.items() for heading, date in DECISION.findall(text)
    )
