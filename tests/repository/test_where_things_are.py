"""docs/contributing/where-things-are.md names every module, and every file that its recipes would change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

import django_idempotency

PACKAGE = Path(django_idempotency.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "contributing" / "where-things-are.md").read_text(encoding="utf-8")


def listed(heading: str) -> list[str]:
    """The files in the tables below a heading."""
    level = heading.partition(" ")[0]
    (section,) = re.findall(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{2,{len(level)}}} |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def files() -> Iterator[str]:
    """Every file of the package that somebody wrote, by its path in it; migrations are one entry."""
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.is_file() and path.stat().st_size and path.suffix in (".py", ".css", ".html"):
            yield name


def as_listed(name: str) -> str:
    folder, found, _ = name.rpartition("migrations/")
    return folder + found if found else name


def test_every_module_is_named_once() -> None:
    layers = ("store/__init__.py", "http/__init__.py")  # a docstring for the folder and nothing else
    modules = {as_listed(name) for name in files() if name.endswith(".py") and name not in layers}
    assert sorted(listed("## The map")) == sorted(modules)


def test_every_path_of_the_package_on_any_page_exists() -> None:
    root = PACKAGE.parent
    folders = "|".join(sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
    named = re.compile(rf"`(?:django_idempotency/)?((?:{folders})/[\w/]+\.(?:py|css|html))`")
    pages = [*(root / "docs").rglob("*.md"), *root.glob("*.md")]
    paths = {path for page in pages for path in named.findall(page.read_text(encoding="utf-8"))}
    assert {path for path in paths if not (PACKAGE / path).exists()} == set()


@dataclass
class Said:
    """What a module says outside its docstrings and comments."""

    names: set[str] = field(default_factory=set)  # Status.FAILED and FAILED, imported and defined names
    texts: set[str] = field(default_factory=set)

    def mentions(self, *words: str) -> bool:
        """True if one of the words is a name, a text, or stands in quotes in a statement."""
        return any(
            word in self.names or any(word == text or f"'{word}'" in text for text in self.texts) for word in words
        )


@cache
def said(name: str) -> Said:
    tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
    found = Said()
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                found.texts.add(text)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                found.names |= {f"{owner}.{attribute}", attribute}
            case ast.Name(id=identifier) | ast.alias(name=identifier) | ast.FunctionDef(name=identifier):
                found.names.add(identifier)
    return found


def mentioning(*words: str) -> set[str]:
    modules = {as_listed(name) for name in files() if name.endswith(".py") and said(name).mentions(*words)}
    classes = tuple(f".idem-{word}" for word in words)
    styles = {name for name in files() if name.endswith(".css") and any(each in read(name) for each in classes)}
    return modules | styles


def read(name: str) -> str:
    return (PACKAGE / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Recipe:
    heading: str
    words: tuple[str, ...]
    ceiling: int
    others: dict[str, str] = field(default_factory=dict)  # files that name the example for another reason


RECIPES = [
    Recipe(
        "### How to add a state",
        ("Status.DEAD_LETTER", "S.DEAD_LETTER", "dead_letter"),
        8,
        {
            "flow/settle.py": "an outcome of the same name",
            "store/jobs.py": "jobs and requests give work up that may have had a part of its effect",
            "models.py": "dead letters are found through the audit trail",
            "store/dashboard.py": "dead letters are found through the audit trail",
            "store/gauges.py": "dead letters are found through the audit trail",
            "console/filters.py": "dead letters are found through the audit trail",
            "console/dashboard/sections.py": "dead letters have a section of their own",
            "console/dashboard/numbers.py": "dead letters of an operation are a number of their own",
            "console/dashboard/tables.py": "dead letters of an operation have a column of their own",
        },
    ),
    Recipe("### How to add a maintenance job", ("reap", "reap_expired"), 4),
    Recipe(
        "### How to add an admin action",
        ("expire-now", "expire_now", "EXPIRE_NOW"),
        5,
        {
            "core/transitions.py": "its transition, which is a recipe of its own",
            "store/jobs.py": "its statement, which is a recipe of its own",
            "monitoring/promises.py": "a proof expires its own record",
        },
    ),
    Recipe("### How to add a database", ("mysql",), 4),
    Recipe("### How to add a profile", ("STRIPE",), 4),
]


def by_heading(recipe: Recipe) -> str:
    return recipe.heading.removeprefix("### How to ")


@pytest.mark.parametrize("recipe", RECIPES, ids=by_heading)
def test_a_recipe_lists_every_file_that_names_its_example(recipe: Recipe) -> None:
    found = mentioning(*recipe.words)
    assert recipe.others.keys() <= found, "these need no exception any more"
    assert sorted(listed(recipe.heading)) == sorted(found - recipe.others.keys())
    assert len(listed(recipe.heading)) <= recipe.ceiling, "a change touches few files"
