"""The client's own tests, in node's test runner, against the real service."""

from __future__ import annotations

import pytest

from tests.clients.js.conftest import describe, run_program
from tests.kit.processes import Site


@pytest.mark.parametrize("name", ["fetch", "outbox"])
def test_the_tests_of_the_client_pass(node: str, js_site: Site, name: str) -> None:
    """One file after the other: both count what the service has executed."""
    run_program(node, "--test", f"test/{name}.test.js", environment=describe(js_site))
