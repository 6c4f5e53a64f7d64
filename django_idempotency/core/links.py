"""The public addresses of the project, for messages that lead to its documentation."""

from typing import Final

# Placeholders until the repository is public. Files that cannot import them repeat them, and
# tests/repository/test_release.py compares: change them here, and the test names the rest.
REPOSITORY: Final = "https://github.com/django-idempotency/django-idempotency"
DOCUMENTATION: Final = "https://django-idempotency.readthedocs.io/en/latest/"


def docs_url(page: str, anchor: str = "") -> str:
    """Return the address of a page, such as `reference/checks`, or of a section of it."""
    return f"{DOCUMENTATION}{page}.html{anchor and '#'}{anchor}"
