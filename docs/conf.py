"""How Sphinx builds these pages: `python -m sphinx -W docs var/docs`."""

import shutil
from typing import Any

from django_idempotency import __version__

project = "django_idempotency"
author = "The django_idempotency authors"
project_copyright = author
release = version = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = f"Django Idempotency {release}"  # the name of the package would break inside the word


def setup(app: Any) -> None:
    app.connect("build-finished", put_sources_beside_pages)


def put_sources_beside_pages(app: Any, exception: Exception | None) -> None:
    """llms.txt, which an agent reads first, leads to the sources; they lead to each other and to pictures."""
    if exception is None and app.builder.format == "html":
        ignored = shutil.ignore_patterns("_build", "__pycache__", "*.py")
        shutil.copytree(app.srcdir, app.outdir, ignore=ignored, dirs_exist_ok=True)
