"""The client's own tests, in node's test runner, against the real service."""

from __future__ import annotations

from tests.clients.js.conftest import describe, run_program
from tests.kit.processes import Site


def test_the_tests_of_the_client_pass(node: str, js_site: Site) -> None:
    run_program(node, "--test", "test/", environment=describe(js_site))
