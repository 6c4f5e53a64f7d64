"""Addresses in the documentation, for messages that lead to it."""

from typing import Final

# The only place that names a public address of the project. It changes when the repository has one.
DOCUMENTATION: Final = "https://django-idempotency.readthedocs.io/en/latest/"


def docs_url(page: str, anchor: str = "") -> str:
    """Return the address of a page, such as `reference/checks`, or of a section of it."""
    return f"{DOCUMENTATION}{page}.html{anchor and '#'}{anchor}"
