"""Shared by the tests that run what the pages show."""

from __future__ import annotations

import pytest

from django_idempotency import reconciliation


@pytest.fixture(autouse=True)
def _reconcilers_of_a_page_end_with_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a page could be run only once."""
    monkeypatch.setattr(reconciliation, "_RECONCILERS", dict(reconciliation._RECONCILERS))
