from typing import Any

import pytest

from tests.kit.operations import begin_anew
from tests.kit.rides import World


@pytest.fixture(autouse=True)
def world(settings: Any) -> World:
    return begin_anew(settings)
