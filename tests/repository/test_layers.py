"""Imports point one way, core is pure, and each optional dependency is imported by one file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import django_idempotency

ROOT = Path(django_idempotency.__file__).parent
PACKAGE = ROOT.name

# From the bottom up: a module imports from its own rank and from those below. A folder is a rank, so that a new file in
# one needs no entry; a module directly in the package is public or Django's own, and has to be named.
RANKS = (
    {"core", "exceptions", "client"},
    {"models", "conf", "signals", "fields", "migrations"},
    {"store"},
    {"flow"},
    {
        "http", "monitoring", "decorators", "middleware", "ninja", "rest_framework", "operations", "once",
        "reconciliation", "maintenance", "tasks", "key_sources", "tenants", "testing", "urls", "health_urls",
        "rules_urls", "protection", "admin_forms",
    },
    {"checks", "console", "management", "contrib", "admin", "apps", "templatetags"},
)  # fmt: skip
PARSERS = {"rfc8785", "http_sf"}
IMPURE = {"time", "random", "secrets", "os", "socket", "threading", "subprocess", "sqlite3", "asyncio"}
OPTIONAL = [
    "rest_framework", "celery", "drf_spectacular", "prometheus_client", "opentelemetry", "django_celery_beat",
    "django_tenants", "ninja", "factory", "pytest", "httpx", "requests",
]  # fmt: skip
TESTING = f"{PACKAGE}.testing"  # a project's tests may have a dependency that its service has as well
DRIVERS = ["psycopg", "psycopg2", "MySQLdb", "pymysql", "sqlite3"]


def module_name(path: Path) -> str:
    parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


@cache
def imported(tree: ast.Module) -> list[str]:
    """Every module that a file imports, wherever in the file it does."""
    return list(find_imported(tree))


def find_imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


def own(tree: ast.Module) -> list[str]:
    return [name for name in imported(tree) if name == PACKAGE or name.startswith(f"{PACKAGE}.")]


def top(name: str) -> str:
    return name.split(".")[0]


def rank(module: str) -> int:
    if module == PACKAGE:
        return 0
    room = module.split(".")[1]
    found = [number for number, names in enumerate(RANKS) if room in names]
    assert len(found) == 1, f"{module} has no rank; name {room!r} in RANKS"
    return found[0]


def importers(dependency: str) -> list[str]:
    return [module for module, tree in MODULES.items() if any(top(name) == dependency for name in imported(tree))]


def forbid_others(
    imports: Callable[[ast.Module], Iterable[str]], may: Callable[[str, str], bool], within: str = ""
) -> None:
    """Name each import that a module of `within` has and may not have."""
    found = {
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        if module.startswith(f"{PACKAGE}{within}")
        for name in imports(tree)
        if not may(module, name)
    }
    assert not found, "\n".join(sorted(found))


def test_imports_point_down() -> None:
    forbid_others(own, lambda module, name: rank(name) <= rank(module))


def test_there_is_no_cycle() -> None:
    graph = {module: set(own(tree)) - {module} for module, tree in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_core_is_pure() -> None:
    allowed = (set(sys.stdlib_module_names) | PARSERS) - IMPURE
    inside = (f"{PACKAGE}.core", f"{PACKAGE}.exceptions")
    forbid_others(imported, lambda _, name: name.startswith(inside) or top(name) in allowed, ".core")


def test_an_optional_dependency_is_imported_by_one_file() -> None:
    for dependency in OPTIONAL:
        modules = importers(dependency)
        for_tests = [module for module in modules if module.startswith(f"{TESTING}.")]
        assert len(for_tests) <= 1, (dependency, for_tests)
        assert len(modules) - len(for_tests) <= 1, (dependency, modules)


def test_only_tests_import_the_testing_kit() -> None:
    forbid_others(own, lambda module, name: module.startswith(TESTING) or not name.startswith(TESTING))


def test_a_parser_is_imported_by_core_alone() -> None:
    for parser in sorted(PARSERS):
        (module,) = importers(parser)
        assert module.startswith(f"{PACKAGE}.core."), parser


def test_no_driver_is_imported() -> None:
    """But for the file in which a client keeps its calls, which is no database of the project."""
    assert {driver: importers(driver) for driver in DRIVERS if importers(driver)} == {
        "sqlite3": [f"{PACKAGE}.client.outbox"]
    }


def test_the_client_imports_nothing_of_the_server() -> None:
    """Nor Django: services that are no Django projects use it."""
    allowed = {*sys.stdlib_module_names, "httpx", "anyio", "requests", "urllib3"}
    inside = f"{PACKAGE}.client"
    forbid_others(imported, lambda _, name: name.startswith(inside) or top(name) in allowed, ".client")


def test_conf_alone_reads_the_settings() -> None:
    """But for loading the app, which needs to know of one entry whether it is there."""
    readers = [module for module, tree in MODULES.items() if "django.conf" in imported(tree)]
    assert readers == [f"{PACKAGE}.apps", f"{PACKAGE}.conf"]


def test_the_store_alone_speaks_sql() -> None:
    speakers = {
        module
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cursor", "raw")
    }
    assert speakers
    assert {name for name in speakers if ".migrations." not in name and ".store." not in name} == set()


def test_one_module_starts_threads() -> None:
    """So that none forgets the context variables and the tenant of the code that starts it."""
    names = {"Thread", "Timer", "ThreadPoolExecutor", "to_thread", "run_in_executor"}
    starters = {
        module
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and {getattr(node.func, "id", ""), getattr(node.func, "attr", "")} & names
    }
    assert starters == {f"{PACKAGE}.store.threads"}


def test_a_package_imports_nothing_of_its_own() -> None:
    """Importing one module must not need the app registry for another's sake. The root and the client are pure."""
    pure = {PACKAGE: f"{PACKAGE}.core.", f"{PACKAGE}.client": f"{PACKAGE}.client."}
    packages = {module for module in MODULES if (ROOT.parent / module.replace(".", "/")).is_dir()}

    def may(module: str, name: str) -> bool:
        return module not in packages or (module in pure and name.startswith(pure[module]))

    forbid_others(lambda tree: own(without_annotations(tree)), may)


def without_annotations(tree: ast.Module) -> ast.Module:
    """What runs: not the imports for type checkers alone."""
    run = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(run, [])
