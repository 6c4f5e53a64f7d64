"""Fixtures for pytest. A project opts in with `pytest_plugins = ["django_idempotency.testing.plugin"]`, or with `-p`.

Nothing of Django is imported before a fixture is used: `-p` loads this module before Django is set up.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_idempotency.testing import AsyncIdempotentClient, FakeProvider, IdempotentAPIClient, IdempotentClient


@pytest.fixture
def idempotent_client() -> "IdempotentClient":
    """Django's test client, with a new key for each request that may write."""
    from django_idempotency.testing import IdempotentClient

    return IdempotentClient()


@pytest.fixture
def async_idempotent_client() -> "AsyncIdempotentClient":
    """Django's async test client, with a new key for each request that may write."""
    from django_idempotency.testing import AsyncIdempotentClient

    return AsyncIdempotentClient()


@pytest.fixture
def idempotent_api_client() -> "IdempotentAPIClient":
    """The test client of Django REST framework, with a new key for each request that may write."""
    from django_idempotency.testing import IdempotentAPIClient

    return IdempotentAPIClient()


@pytest.fixture
def idempotency_keys() -> Iterator[None]:
    """Let every test client add keys. For a whole suite, set `usefixtures = idempotency_keys` in the configuration."""
    from django_idempotency.testing import add_keys

    with add_keys():
        yield


@pytest.fixture
def fake_provider() -> "FakeProvider":
    """An external service with a ledger, which recognises downstream keys."""
    from django_idempotency.testing import FakeProvider

    return FakeProvider()
