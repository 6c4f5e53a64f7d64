"""The picture and the tables of docs/reference/states.md are what the code says."""

from docs.states import BOXES, HEIGHT, PAGE, PICTURE, ROUTES, WIDTH, Point, page, picture


def test_picture_is_drawn_from_the_table() -> None:
    assert PICTURE.read_bytes() == picture().encode(), "run: python -m docs.states"


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
