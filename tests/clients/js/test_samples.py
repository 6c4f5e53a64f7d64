"""The samples of the guides for clients are run: in Chromium, in node, and in node with other libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lossy_proxy import Fate, LossyProxy
from tests.browser.browsing import is_complaint, launched
from tests.clients.js.conftest import describe, run_program
from tests.kit.processes import Site
from tests.repository.test_samples import PAGES, blocks

pytestmark = pytest.mark.soak

SERVICE = "https://api.example.com"
STRICT_ASSERT = "console.assert = (holds) => { if (!holds) throw new Error('an assertion of the page fails'); };\n"
IMPORT = re.compile(r'^import \{ (.+) \} from "django-idempotency-client";$', re.MULTILINE)
# As React Native has it: without Web Locks, IndexedDB and randomUUID.
ASYNC_STORAGE = """
Object.defineProperty(globalThis, "navigator", { value: undefined });
Object.defineProperty(globalThis.crypto, "randomUUID", { value: undefined });
const entries = new Map();
export default {
  getItem: async (key) => entries.get(key) ?? null,
  setItem: async (key, value) => void entries.set(key, value),
  removeItem: async (key) => void entries.delete(key),
  getAllKeys: async () => [...entries.keys()],
};
"""


def code_of(page: str) -> str:
    found = [code for _, code in blocks(PAGES[f"docs/how-to/{page}.md"], "js")]
    assert found, page
    return "\n".join(found)


def customers(site: Site) -> list[str]:
    return [each["customer"] for each in site.alice.get("/payments/").json()]


class EverySecond(LossyProxy):
    """Loses the response to the first, the third, … request."""

    def _choose(self) -> Fate:
        fate = Fate.CARRIED if self.fates.total() % 2 else Fate.RESPONSE_LOST
        self.fates[fate] += 1
        return fate


@pytest.fixture
def lossy(js_site: Site) -> Iterator[EverySecond]:
    with closing(EverySecond(js_site.service.port, 0, lambda: None)) as proxy:
        yield proxy


def run_in_node(node: str, folder: Path, page: str, site: Site, url: str) -> None:
    program = STRICT_ASSERT + code_of(page).replace(SERVICE, url)
    (folder / f"{page}.js").write_text(program)
    run_program(node, f"{page}.js", folder=folder, environment=describe(site))


@pytest.fixture
def tab(js_site: Site) -> Iterator[Any]:
    for chromium in launched():
        context = chromium.new_context(base_url=js_site.service.url)
        yield context.new_page()


def test_the_samples_for_browsers_run(tab: Any, js_site: Site) -> None:
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    tab.goto("/outbox/")
    (form,) = re.findall(r"^```html\n(.*?)^```$", PAGES["docs/how-to/browser-client.md"], re.MULTILINE | re.DOTALL)
    tab.evaluate("(html) => document.body.innerHTML = html", form)
    before = len(customers(js_site))
    code = IMPORT.sub(r'const { \1 } = await import("/static/client/index.js");', code_of("browser-client"))
    tab.evaluate(f"async () => {{ {STRICT_ASSERT} {code} }}")
    tab.evaluate("() => { const form = document.querySelector('#order'); form.requestSubmit(); form.requestSubmit() }")
    tab.wait_for_function("() => document.querySelector('output').value === 'Ordered'")
    assert sorted(customers(js_site)[: len(customers(js_site)) - before]) == ["ada", "barbara", "edsger", "grace"]
    assert complaints == []


def test_the_samples_for_react_native_run(node: str, app: Path, js_site: Site, lossy: EverySecond) -> None:
    storage = app / "node_modules" / "@react-native-async-storage" / "async-storage"
    storage.mkdir(parents=True)
    (storage / "package.json").write_text('{"type": "module", "main": "index.js"}')
    (storage / "index.js").write_text(ASYNC_STORAGE)
    before = customers(js_site).count("ada")
    run_in_node(node, app, "mobile-client", js_site, f"http://127.0.0.1:{lossy.port}")
    assert customers(js_site).count("ada") == before + 1
    assert lossy.fates.total() == 2


def test_the_recipes_for_libraries_retry_with_one_key(
    node: str, app_with_libraries: Path, js_site: Site, lossy: EverySecond
) -> None:
    run_in_node(node, app_with_libraries, "http-libraries", js_site, f"http://127.0.0.1:{lossy.port}")
    assert [customers(js_site).count(name) for name in ("axios", "got", "ky")] == [1, 1, 1]
    assert lossy.fates.total() == 6
