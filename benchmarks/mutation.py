"""Break one line of the engine at a time, and see which tests notice: python -m benchmarks.mutation [--sample 300]

First all tests that start no process run once under coverage, so that it is known which of them reach a line. Then one
process collects them, and forks for each mutant: the child puts the changed code into the running functions and runs
the tests that reach the line until one fails. `--save` writes the mutants with their fates; `--same` reads such a file
and tries those mutants again, as far as their code is still there.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final
from xml.etree import ElementTree

import coverage
import pytest
from django.db import connections

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "django_idempotency"
LAYERS: Final = ("core", "store", "flow", "http")
DATA: Final = ROOT / "var" / "mutation.coverage"
DATABASE: Final = ROOT / "var" / "mutation.sqlite3"
SECONDS_OF_TESTS: Final = ROOT / "var" / "mutation.xml"
LEFT_OUT: Final = ["nodes", "browser", "clients", "repository"]
SUITE: Final = [
    *("-m", "not processes and not soak", "-q", "-p", "no:cacheprovider"),
    *(f"--ignore=tests/{folder}" for folder in LEFT_OUT),
    "tests",
]
PROCESSOR_SECONDS: Final = 30  # of the tests of one mutant
SECONDS: Final = 400  # after which a mutant hangs
MOST_TESTS: Final = 120  # tried for one mutant: the quickest that reach its line
COMPARISONS: Final = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one place. The place is named by its text, so that it is found again when lines have moved."""

    path: str
    function: str
    kind: str
    text: str
    number: int  # among the same changes of the same text in this function

    def __str__(self) -> str:
        return f"{self.path} {self.function}: {self.kind}: {self.text[:90]}"


class Changes(ast.NodeVisitor):
    """Every change of a module: in which function it is, and how it is made."""

    def __init__(self, source: str, path: str) -> None:
        self.source, self.path = source, path
        self.names: list[str] = []
        self.inside = 0
        self.found: list[tuple[Mutant, ast.AST, str]] = []
        self.seen: Counter[tuple[str, str, str]] = Counter()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within(node.name, node, [*node.body], function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._within(node.name, node, [*node.body], function=True)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _within(self, name: str, node: ast.AST, body: list[ast.stmt], *, function: bool) -> None:
        self.names.append(name)
        self.inside += function
        if function and ast.get_docstring(node) is not None:  # type: ignore[arg-type]
            body = body[1:]
        for each in body:
            self.visit(each)
        self.inside -= function
        self.names.pop()

    def generic_visit(self, node: ast.AST) -> None:
        if self.inside:
            for kind in self._kinds(node):
                self._note(node, kind)
        super().generic_visit(node)

    def _kinds(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Compare() if type(node.ops[0]) in COMPARISONS:
                yield "other comparison"
            case ast.BoolOp():
                yield "and for or"
            case ast.UnaryOp(op=ast.Not()):
                yield "without not"
            case ast.Constant(value=bool()):
                yield "other truth"
            case ast.Constant(value=int()):
                yield "one more"
            case ast.If() | ast.IfExp() | ast.While():
                yield "condition always"
                yield "condition never"
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield "without the call"
            case ast.Return(value=value) if value is not None and not _is_none(value):
                yield "returns None"
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                yield "plus for minus"
            case ast.keyword(arg=str(), value=ast.Constant(value=str())):
                yield "empty argument"

    def _note(self, node: ast.AST, kind: str) -> None:
        shown = ast.unparse(node).partition("\n")[0]
        function = ".".join(self.names)
        key = (function, kind, shown)
        self.found.append((Mutant(self.path, function, kind, shown, self.seen[key]), node, kind))
        self.seen[key] += 1


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def change(node: Any, kind: str) -> None:
    """Change a node of a copied tree in place."""
    match kind:
        case "other comparison":
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
        case "and for or":
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case "without not":
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case "other truth":
            node.value = not node.value
        case "one more":
            node.value += 1
        case "condition always" | "condition never":
            node.test = ast.Constant(kind == "condition always")
        case "without the call":
            node.value = ast.Constant(None)
        case "returns None":
            node.value = ast.Constant(None)
        case "plus for minus":
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case "empty argument":
            node.value = ast.Constant("")


class Module:
    """The source of one module, and the code of its functions after a change."""

    def __init__(self, path: Path) -> None:
        self.file = path
        self.path = path.relative_to(ROOT).as_posix()
        source = path.read_text()
        self.tree = ast.parse(source)
        visitor = Changes(source, self.path)
        visitor.visit(self.tree)
        self.changes = {mutant: (node, kind) for mutant, node, kind in visitor.found}

    def line(self, mutant: Mutant) -> int:
        node: Any = self.changes[mutant][0]
        return int((node.value if isinstance(node, ast.keyword) else node).lineno)

    def code_after(self, mutant: Mutant) -> dict[str, CodeType]:
        """Return the code of the module's functions by their qualified names, with this change in one of them."""
        node, kind = self.changes[mutant]
        position = [id(each) for each in ast.walk(self.tree)].index(id(node))
        tree = copy.deepcopy(self.tree)
        change(list(ast.walk(tree))[position], kind)
        code = compile(ast.fix_missing_locations(tree), str(self.file), "exec", dont_inherit=True)
        return dict(_functions(code))


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each.co_qualname, each
            yield from _functions(each)


def put_in(module: Module, mutant: Mutant) -> bool:
    """Replace the code of the running functions that the change is in. False if none of them runs here."""
    after = module.code_after(mutant)
    done = False
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == str(module.file):
            new = after.get(each.__code__.co_qualname)
            if new is None or len(new.co_freevars) != len(each.__code__.co_freevars):
                continue
            if new.co_firstlineno == each.__code__.co_firstlineno and new != each.__code__:
                each.__code__ = new
                done = True
    return done


class Plugin:
    """Runs in the process of pytest, after the collection, in place of its loop over the tests."""

    def __init__(self, mutants: list[Mutant], modules: dict[str, Module]) -> None:
        self.mutants, self.modules = mutants, modules
        self.reached, self.seconds = read_reached(), read_seconds()
        self.fates: dict[Mutant, str] = {}
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        by_name = defaultdict(list)
        for item in session.items:
            by_name[context_of(item)].append(item)
        kept = self._make_database(session.items)
        for number, mutant in enumerate(self.mutants, 1):
            for path, content in kept.items():
                path.write_bytes(content)
            names = self.reached.get((mutant.path, self.modules[mutant.path].line(mutant)), set())
            items = [item for name in sorted(names, key=lambda name: self.seconds[name]) for item in by_name[name]]
            began = time.monotonic()
            fate = self.fates[mutant] = self._try(mutant, items[:MOST_TESTS])
            passed = time.monotonic() - began
            print(f"{number}/{len(self.mutants)} {fate} by {len(items)} tests in {passed:.1f} s: {mutant}", flush=True)
        return True

    def _make_database(self, items: list[pytest.Item]) -> dict[Path, bytes]:
        """Run one test, so that the fixtures of the session are there. Return the files of the databases."""
        first = next(item for item in items if item.get_closest_marker("django_db"))
        elsewhere = next(item for item in items if item.path.parent != first.path.parent)
        self._run(first, elsewhere)
        names = [Path(str(connections[alias].settings_dict["NAME"])) for alias in connections]
        connections.close_all()
        return {path: path.read_bytes() for path in names if path.is_file()}

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _try(self, mutant: Mutant, items: list[pytest.Item]) -> str:
        if not items:
            return "unreached"
        child = os.fork()
        if child == 0:
            self._be_mutant(mutant, items)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):  # it hung, or took the process with it, unless it only had too many tests
            return "unfinished" if os.WTERMSIG(status) == signal.SIGPROF else "killed"
        return {0: "survived", 1: "killed"}.get(os.WEXITSTATUS(status), "absent")

    def _be_mutant(self, mutant: Mutant, items: list[pytest.Item]) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if not put_in(self.modules[mutant.path], mutant):
            os._exit(2)
        self.failed = False
        for item, following in zip(items, [*items[1:], None], strict=True):
            try:
                self._run(item, following)
            except BaseException:  # noqa: BLE001 - whatever it was, the change was noticed
                self.failed = True
            if self.failed:
                os._exit(1)
        os._exit(0)


def context_of(item: pytest.Item) -> str:
    """Return the name that coverage gives to the test function."""
    function = getattr(item, "function", None)
    return "" if function is None else f"{function.__module__}.{function.__qualname__}"


def measure() -> None:
    """Note which test reaches which line, and how long each test takes."""
    settings = DATA.with_suffix(".rc")
    settings.write_text(
        f"[run]\nparallel = true\nsource = {PACKAGE}\ndata_file = {DATA}\ndynamic_context = test_function\n"
        "disable_warnings = already-imported\n"
    )
    python, rc = [sys.executable, "-m", "coverage"], f"--rcfile={settings}"
    tests = [*python, "run", rc, "-m", "pytest", *SUITE, f"--junitxml={SECONDS_OF_TESTS}"]
    subprocess.run(tests, cwd=ROOT, check=False)  # noqa: S603 # a failing test reaches its lines as well
    subprocess.run([*python, "combine", rc], cwd=ROOT, check=True)  # noqa: S603


def read_reached() -> dict[tuple[str, int], set[str]]:
    """Return the tests that reach a line of a module."""
    data = coverage.CoverageData(str(DATA))
    data.read()
    reached: dict[tuple[str, int], set[str]] = {}
    for file in data.measured_files():
        name = PACKAGE.name + file.rpartition(PACKAGE.name)[2]
        for line, contexts in data.contexts_by_lineno(file).items():
            reached[name, line] = {each for each in contexts if each}
    return reached


def read_seconds() -> dict[str, float]:
    """Return how long the cases of each test take together."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(SECONDS_OF_TESTS).iter("testcase"):  # noqa: S314 # written by the run above
        seconds[f"{case.attrib['classname']}.{case.attrib['name'].partition('[')[0]}"] += float(case.attrib["time"])
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--same", type=Path, help="try the mutants of this file again")
    parser.add_argument("--save", type=Path, help="write the mutants and their fates to this file")
    parser.add_argument("--measured", action="store_true", help="take the coverage that the last run has measured")
    given = parser.parse_args()
    os.environ["DATABASE_URL"] = f"sqlite:///{DATABASE}"
    DATA.parent.mkdir(exist_ok=True)
    if not given.measured:
        measure()
    modules = {}
    for layer in LAYERS:
        for path in sorted((PACKAGE / layer).rglob("*.py")):
            module = Module(path)
            modules[module.path] = module
    known = [mutant for module in modules.values() for mutant in module.changes]
    if given.same:
        before = {Mutant(**each["mutant"]): each["fate"] for each in json.loads(given.same.read_text())}
        chosen = [mutant for mutant in before if mutant in set(known)]
        print(f"{len(before) - len(chosen)} of {len(before)} mutants are gone, because their code has changed.")
    else:
        before = {}
        chosen = random.Random(given.seed).sample(sorted(known, key=repr), given.sample)
    print(f"{len(chosen)} of {len(known)} mutants", flush=True)
    plugin = Plugin(chosen, modules)
    pytest.main(SUITE, plugins=[plugin])
    print(dict(Counter(plugin.fates.values())))
    for mutant, fate in plugin.fates.items():
        if fate == "survived" or (before.get(mutant) == "killed" and fate != "killed"):
            print(f"{fate}{' (killed before)' if before.get(mutant) == 'killed' else ''}: {mutant}")
    if given.save:
        rows = [{"mutant": asdict(mutant), "fate": fate} for mutant, fate in plugin.fates.items()]
        given.save.write_text(json.dumps(rows, indent=1))
    lost = [mutant for mutant, fate in plugin.fates.items() if before.get(mutant) == "killed" and fate != "killed"]
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
