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

import django_idempotency
from django_idempotency import IETF, STRIPE, conf, exceptions
from django_idempotency.client import CallRules
from django_idempotency.core import problems
from django_idempotency.http.context import Idempotency, NoIdempotency
from django_idempotency.maintenance import Bounds
from django_idempotency.monitoring import gauges, metrics
from django_idempotency.reconciliation import Landed, resolve
from django_idempotency.testing import assert_idempotent
from django_idempotency.testing.endpoint_checks import ENDPOINT_CHECKS
from django_idempotency.testing.messages import DEFECTS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("**/*.md"), *ROOT.glob("*.md")])
TEXT = "\n".join(page.read_text() for page in PAGES)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def rows(page: str) -> set[str]:
    """What the tables and lists of a reference page describe."""
    return set(re.findall(r"^(?:\| |- \*\*)`([\w.]+)`", (DOCS / "reference" / page).read_text(), re.MULTILINE))


def test_every_setting_is_described_once() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    described = re.findall(r"^(?:## |\| `)([A-Z_]+)\b", page, re.MULTILINE)
    assert sorted(described) == sorted(conf.names())


def test_every_error_code_is_described() -> None:
    codes = {problem.code for problem in vars(problems).values() if isinstance(problem, problems.Problem)}
    kinds = {name for name, kind in vars(exceptions).items() if isinstance(kind, type) and not name.startswith("_")}
    raised = kinds - {"IdempotencyError"}
    assert rows("errors.md") == codes | raised


def test_every_metric_is_described() -> None:
    assert rows("metrics.md") == {metrics.PREFIX + each.name for each in (*metrics.METRICS, *gauges.GAUGES)}
    assert metrics.PREFIX + metrics.DURATION in (DOCS / "reference" / "metrics.md").read_text()


def documented() -> dict[str, set[str]]:
    """The names that docs/reference/api.md lists, by module."""
    page = (DOCS / "reference" / "api.md").read_text()
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        module, _, text = section.partition("\n")
        if module.startswith("django_idempotency"):
            cells = re.findall(r"^\| (`.+?) \| .+ \|$", text, re.MULTILINE)
            found[module] = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    return found


def offered() -> dict[str, set[str]]:
    """Every `__all__` of the package, by module."""
    package = Path(django_idempotency.__file__).parent
    names = [
        "",
        ".core.transitions",
        *(f".{path.stem}" for path in package.glob("*.py") if path.stem not in ("__init__", "urls")),
        *(f".contrib.{name}" for name in ("opentelemetry", "prometheus", "spectacular")),
        ".testing",
        ".client",
        ".contrib.outbox.store",
    ]
    modules = [import_module(f"django_idempotency{name}") for name in names]
    return {module.__name__: set(module.__all__) for module in modules if hasattr(module, "__all__")}


def test_the_public_api_is_what_the_page_lists() -> None:
    assert documented() == offered()


def test_a_public_name_exists() -> None:
    missing = [
        f"{module}.{name}"
        for module, names in offered().items()
        for name in names
        if not hasattr(import_module(module), name)
    ]
    assert missing == []


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Every name that a text imports from the package, with its module."""
    for module, names in re.findall(
        r"^ *from (django_idempotency[\w.]*) import \(?([^()]+?)(?:\)|$)", source, re.MULTILINE
    ):
        for name in re.split(r"[,\s]+", names.strip(" ,\n")):
            yield module, name


USERS = [*PAGES, *sorted((ROOT / "testproject").rglob("*.py"))]


def test_pages_and_the_demo_import_public_names_only() -> None:
    public = offered()
    private = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in USERS
        for module, name in imports_of(path.read_text())
        if name not in public.get(module, ())
    ]
    assert not private, "\n".join(private)


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


@pytest.mark.parametrize("offer", [resolve, Landed, Bounds, CallRules])
def test_every_argument_of_an_offer_is_described(offer: Any) -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    section = page.split(f"\n## {offer.__name__}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(signature(offer).parameters)


def test_the_testing_kit_is_described() -> None:
    page = (DOCS / "reference" / "testing.md").read_text()
    defects = page.split("\n## Defects\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (\w+)$", defects, re.MULTILINE) == list(DEFECTS)
    section = page.split("\n## assert_idempotent\n")[1].split("\n## ")[0]
    options = [name for name in signature(assert_idempotent).parameters if name != "call"]
    assert re.findall(r"^\| `([\w ]+)`", section, re.MULTILINE) == [*options, *ENDPOINT_CHECKS]


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


def test_links_lead_somewhere() -> None:
    dead = [f"{page.relative_to(ROOT)}: {link}" for page in PAGES for link in links(page) if is_dead(page, link)]
    assert not dead, "\n".join(dead)


def is_dead(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    there = (page.parent / path).resolve() if path else page
    return not there.exists() or bool(anchor and anchor not in anchors(there))


def test_the_page_for_agents_lists_every_page() -> None:
    listed = set(links(DOCS / "llms.txt"))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")} - {"index.md"}


ADDRESS = re.compile(r'docs_url\("(?P<page>[\w/-]+)"(?:, "(?P<anchor>[\w-]+)")?\)')


def test_every_address_in_a_message_leads_to_a_section() -> None:
    package = Path(django_idempotency.__file__).parent
    addresses = {each.groups() for path in package.rglob("*.py") for each in ADDRESS.finditer(path.read_text())}
    assert addresses
    for page, anchor in addresses:
        text = (DOCS / f"{page}.md").read_text()
        headings = {
            re.sub(r"[^a-z0-9]+", "-", each.lower()).strip("-") for each in re.findall(r"^#+ (.+)$", text, re.M)
        }
        assert anchor is None or anchor in headings | set(re.findall(r'<a id="([^"]+)">', text)), (page, anchor)
