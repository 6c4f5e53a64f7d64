"""Alice is logged in; nothing ran yet."""

import pytest

from tests.kit.http import Person, Ran


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    Ran.count = 0


@pytest.fixture
def alice(db: None) -> Person:
    return Person("alice")


@pytest.fixture
def anonymous(db: None) -> Person:
    return Person()
