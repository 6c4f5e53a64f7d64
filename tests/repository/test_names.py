"""A public name means one thing: it is defined in one module, or the reason why not stands here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import django_idempotency

PACKAGE = Path(django_idempotency.__file__).parent
SHARED = {
    "BY_NAME": "a table by the names of its rows",
    "Command": "Django finds a management command by this name",
    "E": "a type variable, and the events in the table of transitions",
    "F": "a type variable",
    "KeyExpired": "an error of this project's keys, and as the client of another service gets it",
    "KeyReused": "an error of this project's keys, and as the client of another service gets it",
    "OutcomeUnknown": "an error of this project's keys, and as the client of another service gets it",
    "Given": "the parameters of a function that is passed on",
    "IdempotentRequest": "the request of a plain view, and of Django REST framework",
    "KeyView": "the view of a key of plain projects, and of Django REST framework",
    "OperationView": "the status view of plain projects, and of Django REST framework",
    "R": "a type variable",
    "T": "a type variable",
    "Text": "a text that may be translated later",
    "UID": "names the receivers of one backend",
    "app_name": "Django finds the namespace of a URL module by this name",
    "build_url": "the address of a page",
    "install": "switches a backend on",
    "register": "Django finds the tags of a template library by this name",
    "urlpatterns": "Django finds the routes of a URL module by this name",
}


def public_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def test_a_name_has_one_meaning() -> None:
    modules: dict[str, set[Path]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        if "migrations" not in path.parts:
            for name in public_names(ast.parse(path.read_text())):
                modules[name].add(path)
    shared = {name for name, paths in modules.items() if len(paths) > 1 and not name.startswith("_")}
    assert shared == set(SHARED)
