"""The drawn pictures of the documentation can be read on a telephone."""

import re

from docs.pictures.drawing import IMAGES

COLUMN = 358  # pixels for a picture on a page that is 390 wide
SMALLEST = 11  # pixels of letters on the screen


def test_letters_are_large_enough_on_a_telephone() -> None:
    smallest = {file.name: smallest_letters(file.read_text(encoding="utf-8")) for file in IMAGES.glob("*.svg")}
    assert {name: pixels for name, pixels in smallest.items() if pixels < SMALLEST} == {}


def smallest_letters(drawing: str) -> float:
    width = float(re.findall(r'<svg [^>]*viewBox="0 0 ([\d.]+) ', drawing)[0])
    return min(float(size) for size in re.findall(r'font-size="([\d.]+)"', drawing)) * min(1, COLUMN / width)
