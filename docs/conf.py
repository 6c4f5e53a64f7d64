"""How Sphinx builds these pages: `python -m sphinx -W docs docs/_build/html`."""

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
html_title = f"django_idempotency {release}"

html_extra_path = ["llms.txt"]  # what an agent reads first
