"""Every python block of the README and of docs/ is run. Blocks of JavaScript are run in tests/clients/js.

The blocks of one page are run in order and share their names, as a reader would type them. A block that cannot be run
says why on the line above it: `<!-- not run: the reason -->`. The models of a page are those of an app "shop": their
tables are made before its test cases are run.
"""

import re
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from django.apps import apps
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^(?P<above>[^\n]*\n)?```(?P<language>python|js|swift|kotlin)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
EXCUSE = re.compile(r"<!-- not run: (?P<reason>\S.*) -->")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text() for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}


def blocks(text: str, language: str = "python") -> Iterator[tuple[int, str]]:
    """Line and code of every block that is to be run."""
    for block in BLOCK.finditer(text):
        if block["language"] == language and not EXCUSE.fullmatch((block["above"] or "").strip()):
            yield text.count("\n", 0, block.start("code")), block["code"]


def run(name: str, text: str) -> dict[str, Any]:
    return run_in(ModuleType(name), text)


def run_in(module: ModuleType, text: str) -> dict[str, Any]:
    name, names = module.__name__, vars(module)
    for line, code in blocks(text):
        exec(compile("\n" * line + code, name, "exec"), names)  # noqa: S102 - the samples are ours, and this is their test
    return names


@pytest.fixture
def page(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of a page that was run. It can be imported by its name, as a URLconf for one."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    yield run_in(module, PAGES[name])
    apps.all_models.pop("shop", None)
    apps.clear_cache()


@pytest.mark.django_db
@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if any(blocks(text))])
def test_samples_run(name: str, page: dict[str, Any]) -> None:
    editor, models = connection.schema_editor(), apps.all_models["shop"].values()
    if models and not connection.features.can_rollback_ddl:
        pytest.skip("NOT TESTED here: the tables of the page's models are made in the test's transaction")
    for model in models:
        editor.deferred_sql = []
        editor.create_model(model)
    run_cases(name, page)


def run_cases(name: str, names: dict[str, Any]) -> None:
    """The test cases that a page shows are run as well."""
    shown = [case for case in names.values() if isinstance(case, type) and case.__module__ == name]
    for case in shown:
        if issubclass(case, unittest.TestCase):
            with mock.patch.object(connection, "close"):  # a case closes it at its end, and the next one needs it
                outcome = unittest.defaultTestLoader.loadTestsFromTestCase(case).run(unittest.TestResult())
            assert outcome.testsRun
            assert outcome.wasSuccessful(), "\n".join(text for _, text in [*outcome.errors, *outcome.failures])


def test_an_excuse_stands_above_a_block() -> None:
    for name, text in PAGES.items():
        excused = sum(bool(EXCUSE.fullmatch((block["above"] or "").strip())) for block in BLOCK.finditer(text))
        assert text.count("<!-- not run:") == excused, f"{name}: a note gives no reason, or no block follows it"


def test_no_language_that_is_never_run_pretends_to_be() -> None:
    assert [name for name, text in PAGES.items() if any(blocks(text, "swift")) or any(blocks(text, "kotlin"))] == []


def test_a_failing_sample_names_its_page_and_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run("page.md", "words\n\n```python\na = 0\n```\n\n```python\n1 / a\n```\n")
    last = caught.traceback[-1]
    assert (str(last.path).endswith("page.md"), last.lineno) == (True, 7)


def test_only_a_reason_excuses_a_block() -> None:
    assert list(blocks("<!-- not run: needs a server -->\n```python\nboom\n```\n")) == []
    assert list(blocks("<!-- not run: -->\n```python\nboom\n```\n")) == [(2, "boom\n")]
    assert list(blocks("```python\nboom\n```\n")) == [(1, "boom\n")]
