"""Clients that generators made of the service's OpenAPI document tell each response of the layer by its type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.core.management import call_command
from drf_spectacular.settings import patched_settings

from tests.kit.environments import make_environment
from tests.kit.processes import Site

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("site", ["off"], indirect=True)]

GENERATOR = "openapi-python-client>=0.29"
FOR_CLIENTS = {"COMPONENT_SPLIT_REQUEST": True, "PARSER_WHITELIST": ["rest_framework.parsers.JSONParser"]}

TYPESCRIPT = ["openapi-typescript@7", "openapi-fetch@0.17", "typescript@5"]

# What somebody writes who has the generated package and no other description of the service. The field `simulate` is
# not in the document.
PROGRAM = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from payments_client import AuthenticatedClient
from payments_client.api.exports import exports_create
from payments_client.api.idempotency import idempotency_operations_retrieve
from payments_client.api.payments import payments_create
from payments_client.models import (
    ExportRequest, IdempotencyKeyAccepted, IdempotencyKeyInProgress, IdempotencyKeyInvalid,
    IdempotencyKeyReusedWithDifferentPayload, IdempotencyNotExecuted, IdempotencyOperationNotFound,
    IdempotencyOperationStatus, IdempotencyOutcomeUnknown, Payment, PaymentRequest,
)

client = AuthenticatedClient(base_url=sys.argv[1], token="alice-token", prefix="Token", timeout=60)


def pay(key, amount=5, **simulate):
    body = PaymentRequest(amount=amount, currency="EUR", customer="ada")
    if simulate:
        body["simulate"] = simulate
    return payments_create.sync_detailed(client=client, body=body, idempotency_key=key)


def expect(kind, response):
    assert isinstance(response.parsed, kind), (response.status_code, response.content)
    return response


key = str(uuid4())
first, replay = expect(Payment, pay(key)), expect(Payment, pay(key))
assert first.parsed == replay.parsed
assert [each.headers.get("Idempotency-Replayed") for each in (first, replay)] == [None, "true"]

reused = expect(IdempotencyKeyReusedWithDifferentPayload, pay(key, amount=6)).parsed
assert (reused.safe_new_key, reused.effect, reused.first_status) == (False, "done", 201)  # the customer has paid
assert expect(IdempotencyKeyInvalid, pay("a, b")).parsed.reason == "several_values"

refused = pay(str(uuid4()), amount=-1)  # a validation error, which the document does not describe
assert "amount" in json.loads(refused.content), refused.content
assert "amount" in refused.parsed

nothing = expect(IdempotencyNotExecuted, pay(str(uuid4()), fail="before"))
assert int(nothing.headers["Retry-After"]) >= 1

key = str(uuid4())
pay(key, fail="after")
assert expect(IdempotencyOutcomeUnknown, pay(key, fail="after")).parsed.safe_new_key is False

for seconds in (1, 5, 25, 125):  # a slow machine may send the second request when the first has ended
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda key: pay(key, sleep=seconds).parsed, [str(uuid4())] * 2))
    if {type(each) for each in both} == {Payment, IdempotencyKeyInProgress}:
        break
else:
    raise AssertionError(both)

accepted = exports_create.sync_detailed(client=client, body=ExportRequest(page=1), idempotency_key=str(uuid4()))
reference = expect(IdempotencyKeyAccepted, accepted).parsed.operation_ref
expect(IdempotencyOperationStatus, idempotency_operations_retrieve.sync_detailed(reference, client=client))
expect(IdempotencyOperationNotFound, idempotency_operations_retrieve.sync_detailed(str(uuid4()), client=client))
"""

# The same in TypeScript. The compiler refuses a `switch` that forgets a code or reads what a problem does not have.
TYPED_PROGRAM = """
import createClient from "openapi-fetch";
import type { paths } from "./payments";

type Responses = paths["/payments/"]["post"]["responses"];
type Refused = 409 | 422 | 503;
type Problem = { [Status in Refused]: Responses[Status]["content"]["application/problem+json"] }[Refused];

declare const process: { argv: string[] };
const headers = { Authorization: "Token alice-token" };
const client = createClient<paths>({ baseUrl: process.argv[2], headers });

function tell(problem: Problem): string {
  switch (problem.code) {
    case "idempotency_key_in_progress": return "wait";
    case "idempotency_outcome_unknown": return `never with a new key: ${problem.safe_new_key}`;
    case "idempotency_key_reused_with_different_payload": return `with a new key: ${problem.safe_new_key}`;
    case "idempotency_response_not_stored": return `it happened: ${problem.first_status}`;
    case "idempotency_not_executed": return "again";
    case "idempotency_store_unavailable": return "again later";
    default: { const forgotten: never = problem; return forgotten; }
  }
}

async function pay(key: string, amount: number, fail?: string): Promise<string> {
  const simulate = fail ? { simulate: { fail } } : {};
  const body = { amount, currency: "EUR", customer: "ada", ...simulate };
  const { data, error, response } = await client.POST("/payments/", {
    params: { header: { "Idempotency-Key": key } }, body,
  });
  if (data) return `${data.amount} ${response.headers.get("Idempotency-Replayed")}`;
  return response.status === 500 ? "500" : tell(error as Problem);
}

const [key, doubt] = [crypto.randomUUID(), crypto.randomUUID()];
const told = [await pay(key, 5), await pay(key, 5), await pay(key, 6), await pay(crypto.randomUUID(), 5, "before")];
told.push(await pay(doubt, 5, "after"), await pay(doubt, 5, "after"));
console.log(JSON.stringify(told));
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the generator and nothing of this project."""
    return make_environment(tmp_path_factory.mktemp("generator"), GENERATOR)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    document = tmp_path / "openapi.json"
    with patched_settings(FOR_CLIENTS):
        call_command("spectacular", "--format", "openapi-json", "--file", document, "--validate", "--fail-on-warn")
    assert json.loads(document.read_text())["paths"].keys() >= {"/payments/", "/exports/"}
    return document


def test_each_response_of_the_layer_has_a_type(site: Site, python: Path, document: Path) -> None:
    run(python, document.parent, "-m", "openapi_python_client", "generate", "--path", document.name, "--meta", "none",
        "--output-path", "payments_client", "--fail-on-warning")  # fmt: skip

    run(python, document.parent, "-c", PROGRAM, site.service.url)


def test_each_problem_has_a_type_in_typescript(site: Site, document: Path) -> None:
    folder = document.parent
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("NOT TESTED: npm is not installed, so no types are generated")
    (folder / "package.json").write_text('{"type": "module"}')
    installed = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", *TYPESCRIPT],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode and ("ENOTFOUND" in installed.stderr or "E404" in installed.stderr):
        pytest.skip(f"NOT TESTED: no package index has {TYPESCRIPT}, so no types are generated")
    assert installed.returncode == 0, installed.stderr
    (folder / "program.ts").write_text(TYPED_PROGRAM)
    bin_folder = folder / "node_modules" / ".bin"
    run(bin_folder / "openapi-typescript", folder, document.name, "--output", "payments.d.ts")
    options = ["--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"]
    run(bin_folder / "tsc", folder, *options, "program.ts")

    told = json.loads(run(Path(shutil.which("node") or "node"), folder, "program.js", site.service.url))

    assert told == ["5 null", "5 true", "with a new key: false", "again", "500", "never with a new key: false"]


def run(program: Path, folder: Path, *arguments: str) -> str:
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}  # a generator formats its output with the ruff it brings
    done = subprocess.run([program, *arguments], cwd=folder, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
