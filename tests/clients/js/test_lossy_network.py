"""A small version of `python -m benchmarks.lossy_network` for the two drivers of the JavaScript client."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks.lossy_network import DRIVERS, describe, try_client

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.mark.parametrize(("client", "program"), [("fetch in Node", "node"), ("fetch in Chromium", "chromium")])
def test_killed_clients_behind_a_lossy_network_have_one_effect_and_one_response_each(
    client: str, program: str, tmp_path: Path, own_database: Callable[[str], AbstractContextManager[str]]
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"NOT TESTED: {program} is not installed")
    with own_database("lossy_js") as url:
        figures = try_client(client, DRIVERS[client], tmp_path, url, calls=30, kills=3, seed=1)
    assert figures.is_right, describe(figures)
    assert figures.kills > 0
