from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_idempotency.client import Outbox
from tests.client.libraries import LIBRARIES, Library
from tests.kit.scripted import ScriptedService, scripted_service


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with scripted_service() as running:
        yield running


@pytest.fixture(params=LIBRARIES)
def send(request: Any) -> Library:
    return LIBRARIES[request.param]


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox.sqlite3")
