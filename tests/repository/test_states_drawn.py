"""The pictures of a record's life and the tables of docs/reference/states.md are what the code says."""

import re
from collections import defaultdict
from html import unescape
from itertools import pairwise

from django_idempotency import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge
from docs.pictures import life
from docs.pictures.states import PAGE, PICTURE, page, picture

NAMES = {*map(str, Status), "no record", str(Edge.DELETED.value)}
STATE = ' font-weight="bold"'


def test_picture_is_drawn_from_the_table() -> None:
    assert PICTURE.read_bytes() == picture().encode(), "run: python -m docs.pictures"


def test_five_boxes_are_drawn_by_the_code() -> None:
    assert life.PICTURE.read_text() == life.picture(), "run: python -m docs.pictures"


def test_tables_are_written_from_the_table() -> None:
    text = PAGE.read_bytes().decode()
    assert page(text) == text, "run: python -m docs.pictures"


def test_each_row_is_in_the_picture_between_its_states() -> None:
    said = words_by_states()
    expected = set()
    for row in TRANSITIONS:
        for source in map(str, row.sources or {"no record"}):
            target = str(row.target.value)
            if row.target is Edge.SAME or target == source:
                assert row.cite in said[source, ""].split()
            else:
                assert f" {row.cite} {row.event.value} " in said[source, target]
                expected.add((source, target))
    assert {(source, target) for source, target in said if target} == expected


def words_by_states() -> dict[tuple[str, str], str]:
    """What the picture says beside a state, and below it beside each that may follow."""
    said: dict[tuple[str, str], str] = defaultdict(str)
    source = target = ""
    for style, content in re.findall(r"<text[^>]*?var\(--ink\)\"([^>]*)>(.*?)</text>", picture()):
        if STATE in style:
            source, target = content, ""
        elif content in NAMES:
            target = content
        else:
            said[source, target] += f" {unescape(content).strip()} "
    return {states: f" {' '.join(words.split())} " for states, words in said.items()}


def test_nothing_in_the_picture_overlaps() -> None:
    boxes = [
        (int(y), int(y) + int(height)) for y, height in re.findall(r' y="(\d+)" width="\d+" height="(\d+)"', picture())
    ]
    assert all(below[0] >= above[1] for above, below in pairwise(boxes))
    lines = [int(y) for y in re.findall(r'<text x="172" y="(\d+)"', picture())]
    assert all(below - above >= 15 for above, below in pairwise(lines))
