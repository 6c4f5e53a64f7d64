"""Shared by the tests that run what the pages show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.registrations import temporary_registrations


@pytest.fixture(autouse=True)
def _registrations_of_a_page_end_with_its_test() -> Iterator[None]:
    """Undo what a page registers, so that it can run more than once."""
    with temporary_registrations():
        yield
