"""The pictures of docs/contributing/architecture.md say what the code does; what they look like is free."""

from __future__ import annotations

import pytest

from docs.pictures.architecture import LAYERS, TITLES, modules, pictures, room_of, stored, words
from tests.repository.test_layers import RANKS


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return pictures()


def test_the_pictures_say_what_the_code_does(drawn: dict[str, str]) -> None:
    old = [name for name in TITLES if words(stored(name).read_text(encoding="utf-8")) != words(drawn[name])]
    assert old == [], "run: python -m docs.pictures"


def test_every_picture_is_on_the_page(drawn: dict[str, str]) -> None:
    assert drawn.keys() == TITLES.keys()
    page = (stored("rooms").parents[1] / "contributing" / "architecture.md").read_text()
    for name in TITLES:
        assert f"images/{stored(name).name}\n:alt:" in page


def test_every_module_is_in_a_room() -> None:
    assert all(room_of(module.split(".")[0]) for module in modules())


def test_the_layers_are_those_that_the_imports_keep() -> None:
    """Errors lie beside core, and both are one rank."""
    layers = [{top for room in layer for top in room.tops} for layer in reversed(LAYERS)]
    assert layers == [set(rank) for rank in RANKS]
