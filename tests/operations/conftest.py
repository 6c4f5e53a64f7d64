from typing import Any

import pytest

from tests.operations.exports import MESSAGES
from tests.operations.rides import WORLD, World


@pytest.fixture(autouse=True)
def world() -> World:
    WORLD.__init__()  # type: ignore[misc]
    return WORLD


@pytest.fixture(autouse=True)
def _messages(settings: Any) -> None:
    """What is sent is kept here instead of going to a broker."""
    MESSAGES.clear()
    settings.IDEMPOTENCY = {"ENQUEUE": MESSAGES.append}
