"""The client's own tests, in node's test runner, against the real service."""

from __future__ import annotations

import json

import pytest

from django_idempotency import IETF, STRIPE
from django_idempotency.client import CallError, ReceivedResponse
from django_idempotency.client.errors import read_error
from django_idempotency.core.problems import PROBLEMS, render
from tests.clients.js.conftest import describe, run_program
from tests.kit.processes import Site

pytestmark = pytest.mark.soak

KINDS = """
import { readError } from "./problems.js";
const kinds = BODIES.map((body) => readError({ status: 409 }, body)?.constructor.name ?? "CallError");
console.log(JSON.stringify(kinds));
"""


@pytest.mark.parametrize("name", ["fetch", "outbox"])
def test_the_tests_of_the_client_pass(node: str, js_site: Site, name: str) -> None:
    """One file after the other: both count what the service has executed."""
    run_program(node, "--test", f"test/{name}.test.js", environment=describe(js_site))


def test_it_gives_each_code_the_kind_that_the_client_for_python_gives_it(node: str) -> None:
    bodies = [render(profile, problem, 409).body or b"" for profile in (IETF, STRIPE) for problem in PROBLEMS]
    program = KINDS.replace("BODIES", f"[{','.join(body.decode() for body in bodies)}]")
    kinds = json.loads(run_program(node, "--input-type=module", "--eval", program))
    errors = [read_error(ReceivedResponse(409, {}, body), "key") or CallError() for body in bodies]
    assert kinds == [type(error).__name__ for error in errors]
    assert set(kinds) > {"KeyRejected", "KeyReused", "InProgress", "OutcomeUnknown", "KeyExpired", "NothingDone"}
