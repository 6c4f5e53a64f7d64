"""How Sphinx builds these pages: `python -m sphinx -W docs var/docs`."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import django
import sphinx.search
from sphinx.search.en import SearchEnglish

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django.setup()

from django_idempotency import __version__  # noqa: E402 - Django comes first
from django_idempotency.core.links import DOCUMENTATION, REPOSITORY  # noqa: E402

project = "django_idempotency"
author = "The django_idempotency authors"
project_copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinxext.opengraph"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "tasklist"]
myst_enable_checkboxes = True
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"  # docstrings mark code with single backticks
copybutton_prompt_text = "$ "
ogp_site_url = DOCUMENTATION
ogp_description_length = 160
ogp_social_cards = {"enable": False}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["checklist.css"]
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
    app.connect("html-page-context", name_checkboxes)
    app.connect("build-finished", put_sources_beside_pages)


def name_checkboxes(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """A reader who hears the page needs a name for each box."""
    if "body" in context:
        context["body"] = context["body"].replace('type="checkbox"', 'type="checkbox" aria-label="Done"')


def put_sources_beside_pages(app: Any, exception: Exception | None) -> None:
    """llms.txt, which an agent reads first, leads to the sources; they lead to each other and to pictures."""
    if exception is None and app.builder.format == "html":
        ignored = shutil.ignore_patterns("_build", "__pycache__", "*.py")
        shutil.copytree(app.srcdir, app.outdir, ignore=ignored, dirs_exist_ok=True)
