from typing import Any

import pytest

from tests.kit.operations import begin_anew
from tests.kit.rides import World


@pytest.fixture
def world(settings: Any) -> World:
    """What the operations of `rides` and `exports` meet; their messages go into a list."""
    return begin_anew(settings)
