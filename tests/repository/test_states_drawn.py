"""The pictures of a record's life and the tables of docs/reference/states.md are what the code says."""

import re
from itertools import combinations

from docs import life
from docs.states import BOXES, HEIGHT, PAGE, PICTURE, ROUTES, WIDTH, Point, page, picture


def test_picture_is_drawn_from_the_table() -> None:
    assert PICTURE.read_bytes() == picture().encode(), "run: python -m docs.states"


def test_five_boxes_are_drawn_by_the_code() -> None:
    assert life.PICTURE.read_text() == life.picture(), "run: python -m docs.life"


def test_labels_do_not_overlap() -> None:
    pills = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="20" rx="10"', picture())
    assert len(pills) == len(ROUTES)
    for one, other in combinations([tuple(map(int, pill)) for pill in pills], 2):
        (left, upper), (right, lower) = sorted((one[:2], other[:2]))
        width = one[2] if one[:2] == (left, upper) else other[2]
        assert right >= left + width or abs(upper - lower) >= 20, (one, other)


def test_tables_are_written_from_the_table() -> None:
    text = PAGE.read_bytes().decode()
    assert page(text) == text, "run: python -m docs.states"


def test_arrows_begin_and_end_at_the_border_of_their_boxes() -> None:
    for (source, target), (corners, _label) in ROUTES.items():
        assert on_border(corners[0], BOXES[source][0]), f"the arrow from {source} to {target} begins in the air"
        assert on_border(corners[-1], BOXES[target][0]), f"the arrow from {source} to {target} ends in the air"


def on_border(point: Point, middle: Point) -> bool:
    across, down = abs(point[0] - middle[0]), abs(point[1] - middle[1])
    return (across == WIDTH // 2 and down <= HEIGHT // 2) or (down == HEIGHT // 2 and across <= WIDTH // 2)
