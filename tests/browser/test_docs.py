"""The documentation in a real browser, at the width of a desk and of a telephone: axe finds nothing, and nothing
is wider than the screen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.browsing import axe, launched

pytest.importorskip("sphinx", reason="sphinx is not installed: the documentation was NOT tried in a browser")

pytestmark = [pytest.mark.slow, pytest.mark.soak]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "index",
    "start/quick-start",
    "start/choose-a-mode",
    "how-to/index",
    "how-to/admin",
    "how-to/dashboard",
    "how-to/troubleshooting",
    "reference/api",
    "reference/policy",
    "reference/errors",
    "reference/frameworks",
    "reference/signatures/work",
    "explanation/guarantees",
)
WIDTHS = (1440, 390)
OPTIONS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")],
        check=True,
        timeout=120,
    )
    return folder / "html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    yield from launched()


def test_every_reader_can_use_the_pages(site: Path, chromium: Any) -> None:
    page, found = chromium.new_page(), []
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            violations = axe.Axe().run(page, options=OPTIONS).response["violations"]
            found += [f"{name}, {width} px: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations]
            if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                found.append(f"{name}, {width} px: it is wider than the screen")
    assert found == []
