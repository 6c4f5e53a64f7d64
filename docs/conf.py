"""How Sphinx builds these pages: `python -m sphinx -W docs var/docs`."""

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import Any

import django
import sphinx.search
from django.dispatch import Signal
from sphinx.search.en import SearchEnglish

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django.setup()

import django_idempotency  # noqa: E402 - Django comes first
from django_idempotency import Profile, client, testing  # noqa: E402
from django_idempotency.core.links import DOCUMENTATION, REPOSITORY  # noqa: E402

Signal.__repr__ = lambda signal: "Signal()"  # type: ignore[method-assign] # else it is shown with its address
for module in (django_idempotency, client, testing):  # autodoc sees what a module has; these are imported on first use
    for name in module.__all__:
        setattr(module, name, getattr(module, name))

project = "django_idempotency"
author = "The django_idempotency authors"
project_copyright = author
release = version = django_idempotency.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinxext.opengraph"]
exclude_patterns = ["_build"]
nitpicky = True
# The build needs no network, so there is no intersphinx: names of other packages are text. So are type variables and
# the classes of the project that signatures name and no page describes.
nitpick_ignore_regex = [
    (r"py:class", r"dict\[str|(collections|datetime|django|httpx|os|prometheus_client|uuid)\..+"),
    (r"py:class", r"(django_idempotency\.[\w.]+\.)?[A-Z]|Transition"),
    (r"py:class", r"django_idempotency\.(client|contrib|core|flow|http|monitoring|testing)\.\w+\.\w+"),
]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "tasklist"]
myst_enable_checkboxes = True
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "signature"
maximum_signature_line_length = 80
default_role = "code"  # docstrings mark code with single backticks
copybutton_prompt_text = "$ "
ogp_site_url = DOCUMENTATION
ogp_description_length = 160
ogp_social_cards = {"enable": False}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"Django Idempotency {release}"  # the name of the package would break inside the word
html_baseurl = DOCUMENTATION  # of every version: a search engine leads to the latest
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
if (docs_version := os.environ.get("DOCS_VERSION", "latest")) != "latest":
    html_theme_options["announcement"] = (
        f'Version {docs_version}. <a href="{DOCUMENTATION}">Read the latest version</a>.'
    )


class SearchNumbers(SearchEnglish):
    """Sphinx drops numbers from its index and from queries. A reader in trouble searches for 409."""

    js_splitter_code = r"""
var splitQuery = (query) =>
  query
    .split(/[^\p{Letter}\p{Number}_]+/gu)
    .filter((term) => term)
    .map((term) => (/^\d+$/.test(term) ? "n" + term : term));
"""

    def split(self, input: str) -> list[str]:
        return [re.sub(r"^(\d+)$", r"n\1", word) for word in super().split(input)]


def setup(app: Any) -> None:
    sphinx.search.languages["en"] = SearchNumbers
    app.connect("autodoc-before-process-signature", write_defaults)
    app.connect("html-page-context", make_accessible)
    app.connect("html-page-context", name_checkboxes)
    app.connect("html-page-context", label_cells)
    app.add_css_file("tables.css")
    app.connect("build-finished", put_sources_beside_pages)
    app.connect("build-finished", write_one_file)


def make_accessible(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the keyboard scroll code and tables, and use no definition list without terms for parameters."""
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    body = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    parameters = re.compile(r"<dl>\n(<dd>.*?)</dl>", re.DOTALL)
    context["body"] = parameters.sub(lambda found: found[1].replace("<dd>", INDENTED).replace("</dd>", "</div>"), body)


INDENTED = '<div style="margin-left: 2em">'


def label_cells(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Repeat the heading of its column in each cell of a wide table, which folds on a narrow screen."""
    tables = re.compile(r'<table class="docutils.*?</table>', re.DOTALL)
    context["body"] = tables.sub(label_table, context.get("body", ""))


def label_table(found: re.Match[str]) -> str:
    names = [re.sub("<[^>]+>", "", each) for each in re.findall("<th .*?</th>", found[0], re.DOTALL)]
    if len(names) < 3:
        return found[0]
    labels = cycle(["", *(f' data-label="{name}"' for name in names[1:])])
    return re.sub("<td", lambda cell: f"<td{next(labels)}", found[0])


class Default:
    """A default as a caller would write it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def write_defaults(app: Any, callable_: Any, bound: bool) -> None:
    """Shorten defaults that have a long or unreadable form: profiles, enumerations, durations, factories."""
    if inspect.isfunction(callable_):
        shown = inspect.signature(callable_)
        parameters = [each.replace(default=default_of(each)) for each in shown.parameters.values()]
        callable_.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]


def default_of(parameter: inspect.Parameter) -> Any:
    match parameter.default:
        case Profile():
            return Default(parameter.default.name.upper())
        case StrEnum():
            return Default(repr(parameter.default.value))
        case timedelta():
            return Default(repr(parameter.default).removeprefix("datetime."))
        case inspect.Parameter.empty:
            return parameter.default
        case default if callable(default) or "FACTORY" in type(default).__name__:
            return Default("...")
        case default:
            return default


def name_checkboxes(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """A reader who hears the page needs a name for each box."""
    if "body" in context:
        context["body"] = context["body"].replace('type="checkbox"', 'type="checkbox" aria-label="Done"')


def put_sources_beside_pages(app: Any, exception: Exception | None) -> None:
    """llms.txt, which an agent reads first, leads to the sources; they lead to each other and to pictures."""
    if exception is None and app.builder.format == "html":
        ignored = shutil.ignore_patterns("_build", "__pycache__", "pictures", "conf.py")
        shutil.copytree(app.srcdir, app.outdir, ignore=ignored, dirs_exist_ok=True)


def write_one_file(app: Any, exception: Exception | None) -> None:
    """llms-full.txt: the sources of all pages, in the order of the table of contents."""
    if exception is None and app.builder.format == "html":
        order = list(dict.fromkeys(pages_below(app, app.config.root_doc)))
        texts = [f"\nSource: {each}.md\n\n{Path(app.env.doc2path(each)).read_text()}" for each in order]
        (Path(app.outdir) / "llms-full.txt").write_text("".join(texts))


def pages_below(app: Any, page: str) -> Iterator[str]:
    yield page
    for below in app.env.toctree_includes.get(page, ()):
        yield from pages_below(app, below)
