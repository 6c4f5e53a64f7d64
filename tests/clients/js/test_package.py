"""The package as npm would publish it: its files, its size, its types, and that it works when it is installed."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest

from tests.clients.js.conftest import CLIENT, describe, run_program
from tests.kit.processes import Site

pytestmark = pytest.mark.soak

MODULES = ("index.js", "fetch.js", "outbox.js", "problems.js", "stores.js", "node.js")
PROGRAM = """
import { createFetch, createOutbox, fileStore } from "django-idempotency-client/node";
import * as main from "django-idempotency-client";

const url = process.env.SERVICE_URL + "/conformance/echo";
const origins = [process.env.SERVICE_URL];
const response = await main.createFetch({ origins })(url, { method: "POST", body: "installed" });
const outbox = createOutbox({ origins, store: fileStore("outbox") });
const kept = await outbox.once("one", url, { method: "POST", body: "kept" });
console.log(await response.text(), await kept.text(), main.createFetch === createFetch);
"""
TYPED = """
import { createFetch, createOutbox, keyValueStore, OutcomeUnknown, type Store } from "django-idempotency-client";
import { fileStore } from "django-idempotency-client/node";

const origins = ["https://x.example"];
const idempotentFetch = createFetch({ origins, timeout: 5 });
const options = { wait: 5000, onProgress: (now: any) => now.steps };
const response: Response = await idempotentFetch("/x", { method: "POST", body: "x", ...options });
const stores: Store[] = [fileStore("x"), keyValueStore(localStorage)];
const headers = async (url: string) => ({ Authorization: url });
const outbox = createOutbox({ origins, store: stores[0], headers, deadline: 5 });
for (const result of await outbox.resume({ deadline: 5 })) {
  if (result.error) console.log(result.name, result.error);
  else console.log(result.response.status);
}
try {
  await outbox.once("order-17", new URL("https://x.example"), { method: "POST", body: new FormData() });
} catch (error) {
  if (error instanceof OutcomeUnknown) console.log(error.operationRef?.length, error.safeNewKey === false, response.ok);
}
// @ts-expect-error a stream cannot be sent twice
await idempotentFetch("/x", { method: "POST", body: new ReadableStream() });
// @ts-expect-error no service is named
createOutbox({ deadline: 5 });
// @ts-expect-error a misspelt option
await idempotentFetch("/x", { method: "POST", deadlines: 5 });
"""


def test_it_has_the_modules_and_their_types(package: Path) -> None:
    with tarfile.open(package) as tar:
        names = {name.removeprefix("package/") for name in tar.getnames()}
    assert names == {*MODULES, "index.d.ts", "node.d.ts", "package.json", "README.md"}


def test_it_needs_no_other_package(package: Path) -> None:
    assert "ependencies" not in (CLIENT / "package.json").read_text()


def test_it_works_when_it_is_installed(node: str, app: Path, js_site: Site) -> None:
    (app / "program.js").write_text(PROGRAM)
    output = run_program(node, "program.js", folder=app, environment=describe(js_site))
    assert output == "installed kept true\n"


def test_it_stays_small() -> None:
    lines = sum(len((CLIENT / name).read_text().splitlines()) for name in MODULES)
    assert lines < 400


@pytest.mark.parametrize(
    ("names", "limit"), [("{ createFetch, OutcomeUnknown }", 2050), ("*", 3500)], ids=["fetch", "all"]
)
def test_a_page_loads_little(app_with_libraries: Path, names: str, limit: int) -> None:
    """As a bundler minifies it and a server compresses it."""
    (app_with_libraries / "entry.js").write_text(f'export {names} from "django-idempotency-client";')
    command = ("node_modules/.bin/esbuild", "entry.js", "--bundle", "--minify", "--format=esm", "--outfile=bundle.out")
    run_program(app_with_libraries / command[0], *command[1:], folder=app_with_libraries)
    size = len(gzip.compress((app_with_libraries / "bundle.out").read_bytes()))
    assert size < limit, size


def test_the_types_describe_it(app_with_libraries: Path) -> None:
    (app_with_libraries / "typed.ts").write_text(TYPED)
    options = {"strict": True, "noEmit": True, "module": "nodenext", "target": "es2022", "lib": ["es2023", "dom"]}
    (app_with_libraries / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["typed.ts"]}))
    run_program(app_with_libraries / "node_modules/.bin/tsc", folder=app_with_libraries)


def test_every_name_has_a_type(node: str) -> None:
    program = 'import * as all from "./node.js"; console.log(JSON.stringify(Object.keys(all)))'
    names = json.loads(run_program(node, "--input-type=module", "--eval", program))
    types = (CLIENT / "index.d.ts").read_text() + (CLIENT / "node.d.ts").read_text()
    missing = [name for name in names if f" {name}(" not in types and f"class {name} " not in types]
    assert missing == []
