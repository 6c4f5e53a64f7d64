"""Whatever has a name for users stands in the documentation, and every link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from inspect import Parameter, Signature, isfunction, signature
from pathlib import Path
from typing import Any, cast

import pytest

from django_idempotency import conf, exceptions
from django_idempotency.core import problems
from django_idempotency.core.policy import IETF, STRIPE
from django_idempotency.http.context import Idempotency, NoIdempotency
from django_idempotency.maintenance import Bounds
from django_idempotency.monitoring import metrics
from django_idempotency.reconciliation import Landed, resolve

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("**/*.md"), *ROOT.glob("*.md")])
TEXT = "\n".join(page.read_text() for page in PAGES)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def rows(page: str) -> set[str]:
    """What the tables of a reference page describe."""
    return set(re.findall(r"^\| `([\w.]+)`", (DOCS / "reference" / page).read_text(), re.MULTILINE))


def test_every_setting_is_described_once() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    described = re.findall(r"^(?:## |\| `)([A-Z_]+)\b", page, re.MULTILINE)
    assert sorted(described) == sorted(conf.names())


def test_every_error_code_is_described() -> None:
    codes = {problem.code for problem in vars(problems).values() if isinstance(problem, problems.Problem)}
    raised = {kind.__name__ for kind in vars(exceptions).values() if isinstance(kind, type)} - {"IdempotencyError"}
    assert rows("errors.md") == codes | raised


def test_every_metric_is_described() -> None:
    assert rows("metrics.md") == {metrics.PREFIX + metric.name for metric in metrics.METRICS}
    assert metrics.PREFIX + metrics.DURATION in (DOCS / "reference" / "metrics.md").read_text()


def offered() -> set[str]:
    """The names that users may import."""
    page = (DOCS / "reference" / "api.md").read_text()
    return set(re.findall(r"`(django_idempotency\.[\w.]+)`", page))


@pytest.mark.parametrize("path", sorted(offered()))
def test_an_offered_name_exists(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert hasattr(import_module(module), name)


def test_what_the_pages_import_is_offered() -> None:
    imports = re.findall(r"^from (django_idempotency[\w.]*) import ([\w, ]+)$", TEXT, re.MULTILINE)
    used = {(module, name.partition(" as ")[0]) for module, names in imports for name in names.split(", ")}
    own_pages = {f"django_idempotency.{module}" for module in ("signals", "exceptions")}
    missing = {f"{module}.{name}" for module, name in used if module not in own_pages} - offered()
    assert not missing, "docs/reference/api.md does not list these"


def written(owner: object, name: str) -> str:
    """A member as a page writes it: methods with their arguments."""
    method = getattr(type(owner), name, None)
    if not isfunction(method):
        return name
    _, *arguments = signature(method).parameters.values()
    return name + str(Signature([each.replace(annotation=Parameter.empty) for each in arguments]))


@pytest.mark.parametrize(
    "found",
    [Idempotency(cast("Any", None), cast("Any", None), late=True), NoIdempotency()],
    ids=lambda one: type(one).__name__,
)
def test_every_member_of_what_a_view_finds_is_described(found: object) -> None:
    page = (DOCS / "reference" / "request.md").read_text()
    described = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert sorted(described) == sorted(written(found, name) for name in dir(found) if not name.startswith("_"))


@pytest.mark.parametrize("offer", [resolve, Landed, Bounds])
def test_every_argument_of_an_offer_is_described(offer: Any) -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    section = page.split(f"\n## {offer.__name__}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(signature(offer).parameters)


def test_what_stripes_dialect_changes_is_described() -> None:
    page = (DOCS / "reference" / "policy.md").read_text()
    said = re.findall(r"^\| `(\w+)` \| `([^|]+)` \| `([^|]+)` \|$", page, re.MULTILINE)
    ietf, stripe = asdict(IETF), asdict(STRIPE)
    differs = [name for name in ietf if name != "name" and ietf[name] != stripe[name]]
    assert {(name, eval(one), eval(other)) for name, one, other in said} == {  # noqa: S307 - our own page
        (name, ietf[name], stripe[name]) for name in differs
    }


def links(page: Path) -> Iterator[str]:
    for link in LINK.finditer(CODE_FENCE.sub("", page.read_text())):
        if not re.match(r"https?:|mailto:", link["target"]):
            yield link["target"]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", CODE_FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target}: there is no {there}"
        assert not anchor or anchor in anchors(there), f"{target}: no such heading"


def test_the_page_for_agents_lists_every_page() -> None:
    listed = set(links(DOCS / "llms.txt"))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")} - {"index.md"}
