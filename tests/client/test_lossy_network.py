"""A small version of `python -m benchmarks.lossy_network` for the drivers of the Python client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks.lossy_network import DRIVERS, describe, try_client

pytestmark = [pytest.mark.processes, pytest.mark.soak]


@pytest.mark.parametrize("client", ["httpx", "httpx async", "requests"])
def test_killed_clients_behind_a_lossy_network_have_one_effect_and_one_response_each(
    client: str, tmp_path: Path, own_database: Callable[[str], AbstractContextManager[str]]
) -> None:
    with own_database("lossy") as url:
        figures = try_client(client, DRIVERS[client], tmp_path, url, calls=40, kills=3, seed=1)
    assert figures.is_right, describe(figures)
    assert figures.kills > 0
