"""The drawn pictures of the documentation can be read on a telephone."""

import re
from pathlib import Path

import pytest

from docs.pictures.drawing import IMAGES

COLUMN = 358  # pixels for a picture on a page that is 390 wide
SMALLEST = 11  # pixels of letters on the screen


@pytest.mark.parametrize("file", sorted(IMAGES.glob("*.svg")), ids=lambda file: file.stem)
def test_letters_are_large_enough_on_a_telephone(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    width = float(re.findall(r'<svg [^>]*viewBox="0 0 ([\d.]+) ', text)[0])
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert min(sizes) * min(1, COLUMN / width) >= SMALLEST
