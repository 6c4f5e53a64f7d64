"""Alice is logged in; nothing ran yet."""

from typing import Any

import pytest

from tests.kit.http import Person, Ran
from tests.kit.proxy import Proxy, Router


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    Ran.count = 0


@pytest.fixture
def alice(db: None) -> Person:
    return Person("alice")


@pytest.fixture
def anonymous(db: None) -> Person:
    return Person()


@pytest.fixture
def proxy(proxy: Proxy, settings: Any) -> Proxy:
    """The records' database is behind it."""
    settings.DATABASE_ROUTERS = [Router()]
    return proxy
